"""Small files in other programs' formats, for the tests of formats and the fuzzing."""

import struct

SMALL = """MARKOV
3
2 2 3
3
1 0
2 0 1
2 1 2

2
 0.25 0.75

4
 1 2
 3 4

6
 0.1 0.2 0.3
 0.4 0.5 0.6
"""


def written(folder, variables, factors, weights=(1.0,), domains=None, fixed=1):
    """Write a graph.

    Variables are (role, value, type, size), factors (function, literals, weight id, feature), and
    literals (variable, value)."""
    edges = sum(len(literals) for _, literals, *_ in factors)
    files = {
        "meta": f"{len(weights)},{len(variables)},{len(factors)},{edges},a,b,c\n".encode(),
        "weights": b"".join(struct.pack(">QBd", k, fixed, w) for k, w in enumerate(weights)),
        "variables": b"".join(struct.pack(">QBQHQ", k, *v) for k, v in enumerate(variables)),
        "factors": b"".join(
            struct.pack(">HQ", function, len(literals))
            + b"".join(struct.pack(">QQ", *literal) for literal in literals)
            + struct.pack(">Qd", weight, feature)
            for function, literals, weight, feature in factors
        ),
    }
    if domains is not None:
        files["domains"] = b"".join(
            struct.pack(">QQ", v, len(values))
            + b"".join(struct.pack(">Qd", value, 0.0) for value in values)
            for v, values in domains.items()
        )
    for kind, content in files.items():
        (folder / f"graph.{kind}").write_bytes(content)
    return folder


BOOLEAN, THREE = (0, 0, 0, 2), (0, 0, 1, 3)
FUNCTIONS = [0, 1, 2, 3, 4, 7, 8, 9, 12, 13]

# Clauses with a repeated literal, and one that is always true.
CNF = """c a formula
p cnf 4 5
1 -2 0 2 3
-4 0
-1 0
3 3 4 0
2 -2 1 0
"""
WCNF = "c a clause per line\nh 1 2 -3 0\n3 -1 0\n2.5 -2 3 0\n4 0\n"
WCNF_OLD = "p wcnf 3 4 20\n20 1 2 -3 0\n3 -1 0\n2.5 -2 3 0\n4 0\n"
QUBO = "c biases\np qubo 0 4 2 2\n0 0 0.5\n2 2 -2\n0 1 1.5\n1 2 -0.25\n"
GSET = "4 3\n1 2 1\n2 3 -1\n4 1 2.5\n"
XMLBIF = """<?xml version="1.0"?>
<!-- A network of two variables. -->
<BIF VERSION="0.3">
<NETWORK><NAME>lawn</NAME>
<VARIABLE TYPE="nature"><NAME>rain</NAME>
  <OUTCOME>no</OUTCOME><OUTCOME>yes</OUTCOME>
  <PROPERTY>position = (0, 0)</PROPERTY>
</VARIABLE>
<VARIABLE TYPE="nature"><NAME>wet</NAME>
  <OUTCOME>no</OUTCOME><OUTCOME>a bit</OUTCOME><OUTCOME>yes</OUTCOME>
</VARIABLE>
<DEFINITION><FOR>rain</FOR><TABLE>0.8 0.2</TABLE></DEFINITION>
<DEFINITION><FOR>wet</FOR><GIVEN>rain</GIVEN>
  <TABLE>0.7 0.2 0.1 <!-- rain --> 0.2 0.3 0.5</TABLE>
</DEFINITION>
</NETWORK>
</BIF>
"""

WCSP = """demo 3 3 3 20
2 3 2
2 0 1 0 3
0 0 5
1 1 7
1 2 20
1 2 1 1
0 3
0 4 0
"""

CFN = """{"problem": {"name": "demo", "mustbe": "<20.5"},
"variables": {"a": ["no", "yes"], "b": 3, "c": 2},
"functions": {"ab": {"scope": ["a", "b"], "defaultcost": 0.5, "costs": ["no", 0, 2.5, 1, 1, 20.5]},
"bc": {"scope": [1, 2], "costs": [0, 1, 2, 3, 4, 5.25]}}}
"""
