"""Values and states that hard constraints allow: propagation, and a search that uses it.

`rules` is a `graph.pruning.Constraints`; `alive` marks the possible values of every variable, and
`left` has their number per variable. A factor whose variables changed waits in a circular queue:
`ring` has its start and its length.
"""

from __future__ import annotations

from minigibbs.kernels.jit import entry, kernel
from minigibbs.kernels.random import below

LENGTH, VISITS = 0, 1  # of the trail, and table entries read
FOUND, NONE, GAVE_UP = 1, 0, -1


@kernel
def _next_alive(alive, begin, value, size):
    """Return the first possible value from `value` on, or `size`."""
    while value < size and not alive[begin + value]:
        value += 1
    return value


@kernel
def _mark(rules, factor, digits, seen, missing):
    """Mark the values that an entry supports; return the number of values still without support."""
    place = 0
    for k in range(factor.scope_end - factor.scope_start):
        variable = rules.slots[factor.scope_start + k].variable
        if not seen[place + digits[k]]:
            seen[place + digits[k]] = True
            missing -= 1
        place += rules.first[variable + 1] - rules.first[variable]
    return missing


@kernel
def _support(rules, factor, alive, left, digits, seen, length):
    """Mark the values that entries of a factor support; return the number of values without."""
    arity, position, missing, total = factor.scope_end - factor.scope_start, 0, 0, 0
    position = factor.table_start
    for k in range(arity):
        slot = rules.slots[factor.scope_start + k]
        begin = rules.first[slot.variable]
        size = rules.first[slot.variable + 1] - begin
        digits[k] = _next_alive(alive, begin, 0, size)
        position += slot.key * digits[k]
        missing += left[slot.variable]
        total += size
    for k in range(total):
        seen[k] = False
    while missing > 0:
        length[VISITS] += 1
        if rules.possible[position]:
            missing = _mark(rules, factor, digits, seen, missing)
        k = arity - 1
        while k >= 0:  # go to the next entry, like an odometer
            slot = rules.slots[factor.scope_start + k]
            begin = rules.first[slot.variable]
            size = rules.first[slot.variable + 1] - begin
            value = _next_alive(alive, begin, digits[k] + 1, size)
            if value < size:
                position += slot.key * (value - digits[k])
                digits[k] = value
                break
            value = _next_alive(alive, begin, 0, size)
            position += slot.key * (value - digits[k])
            digits[k] = value
            k -= 1
        if k < 0:
            break
    return missing


@kernel
def remove(place, variable, alive, left, trail, length):
    """Remove a value, and append it to the trail if there is one."""
    alive[place] = False
    left[variable] -= 1
    if len(trail):
        trail[length[LENGTH]] = place
        length[LENGTH] += 1


@kernel
def wake(rules, variable, queue, ring, waiting):
    """Append the factors of a variable to the queue."""
    for k in range(rules.user_start[variable], rules.user_start[variable + 1]):
        number = rules.user[k]
        if not waiting[number]:
            waiting[number] = True
            queue[(ring[0] + ring[1]) % len(queue)] = number
            ring[1] += 1


@kernel
def _propagate(rules, alive, left, queue, ring, waiting, digits, seen, trail, length):
    while ring[1] > 0:
        number = queue[ring[0]]
        ring[0] = (ring[0] + 1) % len(queue)
        ring[1] -= 1
        waiting[number] = False
        factor = rules.factors[number]
        if _support(rules, factor, alive, left, digits, seen, length) == 0:
            continue
        place = 0
        for k in range(factor.scope_end - factor.scope_start):
            variable = rules.slots[factor.scope_start + k].variable
            begin, changed = rules.first[variable], False
            for value in range(rules.first[variable + 1] - begin):
                if alive[begin + value] and not seen[place + value]:
                    remove(begin + value, variable, alive, left, trail, length)
                    changed = True
            if left[variable] == 0:
                return number
            if changed:
                wake(rules, variable, queue, ring, waiting)
            place += rules.first[variable + 1] - begin
    return -1


@entry
def propagate(rules, alive, left, queue, ring, waiting, digits, seen, trail, length):
    """Remove the values that queued factors exclude, until the queue is empty; return 0.

    Returns -1 as soon as a variable has no value.
    """
    failed = _propagate(rules, alive, left, queue, ring, waiting, digits, seen, trail, length)
    return 0 if failed < 0 else -1


@kernel
def _restore(first_place, alive, left, owner, trail, length):
    """Restore the values that were removed since the trail had this length."""
    while length[LENGTH] > first_place:
        length[LENGTH] -= 1
        place = trail[length[LENGTH]]
        alive[place] = True
        left[owner[place]] += 1


@kernel
def _empty(queue, ring, waiting):
    """Empty the queue."""
    for k in range(ring[1]):
        waiting[queue[(ring[0] + k) % len(queue)]] = False
    ring[1] = 0


@kernel
def _pick_variable(left, blame, order, decided, looks, stream, length):
    """Choose the next variable in `order`, from `decided` on: few values, many failures.

    Among `looks` random candidates, the one with the fewest values per failure is chosen; without
    candidates, the first. Variables with one value are skipped. Returns the number of decided
    variables, and the index in `order`.
    """
    best, best_score = -1, 0.0
    length[VISITS] += looks
    for _ in range(looks):
        while decided < len(order):
            place = decided + below(stream, len(order) - decided)
            if left[order[place]] > 1:
                break
            order[decided], order[place] = order[place], order[decided]
            decided += 1
            place = -1
        if decided == len(order):
            break
        score = left[order[place]] / blame[order[place]]
        if best < decided or score < best_score:
            best, best_score = place, score
    while best < decided < len(order):  # the best candidate was skipped
        if left[order[decided]] > 1:
            best = decided
        else:
            decided += 1
    return decided, best


@kernel
def _pick_value(rules, alive, left, variable, stream):
    """Choose one of the possible values at random."""
    skip, begin = below(stream, left[variable]), rules.first[variable]
    value = _next_alive(alive, begin, 0, rules.first[variable + 1] - begin)
    for _ in range(skip):
        value = _next_alive(alive, begin, value + 1, rules.first[variable + 1] - begin)
    return value


@entry
def search(
    rules, alive, left, owner, blame, order, levels, stream, looks, most, failures, queue, ring,
    waiting, digits, seen, trail, length,
):  # fmt: skip
    """Reduce every variable of `order` to one value, such that no factor is 0.

    This is backtracking that maintains arc consistency. `levels` [variables + 1, 4] has the
    decisions: length of the trail, number of decided variables, variable, and value. Gives up after
    `failures` failures, or when `most` entries have been read.
    """
    depth, decided = 0, 0
    while True:
        decided, place = _pick_variable(left, blame, order, decided, looks, stream, length)
        if decided == len(order):
            return FOUND
        variable = order[place]
        value = _pick_value(rules, alive, left, variable, stream)
        levels[depth, 0], levels[depth, 1] = length[LENGTH], decided
        levels[depth, 2], levels[depth, 3] = variable, value
        depth += 1
        order[decided], order[place] = order[place], order[decided]
        decided += 1
        begin = rules.first[variable]
        for other in range(rules.first[variable + 1] - begin):
            if other != value and alive[begin + other]:
                remove(begin + other, variable, alive, left, trail, length)
        wake(rules, variable, queue, ring, waiting)
        failed = _propagate(rules, alive, left, queue, ring, waiting, digits, seen, trail, length)
        while failed >= 0:  # the last decision was wrong, given the previous ones
            factor = rules.factors[failed]
            for k in range(factor.scope_start, factor.scope_end):
                blame[rules.slots[k].variable] += 1.0
            _empty(queue, ring, waiting)
            failures -= 1
            if failures < 0 or length[VISITS] > most:
                return GAVE_UP
            if depth == 0:
                return NONE
            depth -= 1
            _restore(levels[depth, 0], alive, left, owner, trail, length)
            decided, variable = levels[depth, 1], levels[depth, 2]
            remove(rules.first[variable] + levels[depth, 3], variable, alive, left, trail, length)
            if left[variable] == 0:
                continue
            wake(rules, variable, queue, ring, waiting)
            failed = _propagate(
                rules, alive, left, queue, ring, waiting, digits, seen, trail, length
            )


@kernel
def _binds(rules, factor, alive, digits, length):
    """Return whether an entry over the possible values is a zero."""
    arity, position = factor.scope_end - factor.scope_start, factor.table_start
    for k in range(arity):
        slot = rules.slots[factor.scope_start + k]
        begin = rules.first[slot.variable]
        digits[k] = _next_alive(alive, begin, 0, rules.first[slot.variable + 1] - begin)
        position += slot.key * digits[k]
    while True:
        length[VISITS] += 1
        if not rules.possible[position]:
            return True
        k = arity - 1
        while k >= 0:
            slot = rules.slots[factor.scope_start + k]
            begin = rules.first[slot.variable]
            size = rules.first[slot.variable + 1] - begin
            value = _next_alive(alive, begin, digits[k] + 1, size)
            more = value < size
            if not more:
                value = _next_alive(alive, begin, 0, size)
            position += slot.key * (value - digits[k])
            digits[k] = value
            if more:
                break
            k -= 1
        if k < 0:
            return False


@entry
def binding(rules, alive, digits, length, out):
    """Set out[k] to whether factor k still excludes something."""
    for number in range(len(rules.factors)):
        out[number] = _binds(rules, rules.factors[number], alive, digits, length)


@kernel
def _fits_instead(rules, factor, alive, slot_of, old, new, digits, length):
    """Return whether `new` can replace `old` in one slot of every possible entry."""
    arity, position = factor.scope_end - factor.scope_start, factor.table_start
    for k in range(arity):
        slot = rules.slots[factor.scope_start + k]
        begin = rules.first[slot.variable]
        digits[k] = _next_alive(alive, begin, 0, rules.first[slot.variable + 1] - begin)
        if k == slot_of:
            digits[k] = old
        position += slot.key * digits[k]
    shift = rules.slots[factor.scope_start + slot_of].key * (new - old)
    while True:
        length[VISITS] += 1
        if rules.possible[position] and not rules.possible[position + shift]:
            return False
        k = arity - 1
        while k >= 0:
            if k == slot_of:
                k -= 1
                continue
            slot = rules.slots[factor.scope_start + k]
            begin = rules.first[slot.variable]
            size = rules.first[slot.variable + 1] - begin
            value = _next_alive(alive, begin, digits[k] + 1, size)
            more = value < size
            if not more:
                value = _next_alive(alive, begin, 0, size)
            position += slot.key * (value - digits[k])
            digits[k] = value
            if more:
                break
            k -= 1
        if k < 0:
            return True


@kernel
def _replaceable(rules, alive, variable, old, new, digits, length):
    """Return whether every factor allows `new` instead of `old` for a variable."""
    for k in range(rules.user_start[variable], rules.user_start[variable + 1]):
        factor = rules.factors[rules.user[k]]
        slot_of = 0
        while rules.slots[factor.scope_start + slot_of].variable != variable:
            slot_of += 1
        if not _fits_instead(rules, factor, alive, slot_of, old, new, digits, length):
            return False
    return True


@kernel
def _fold_variable(rules, alive, left, variable, digits, length):
    """Remove the values that another one can replace; return whether there were any."""
    begin, folded = rules.first[variable], False
    size = rules.first[variable + 1] - begin
    for old in range(size):
        for new in range(size if alive[begin + old] and left[variable] > 1 else 0):
            there = new != old and alive[begin + new] and alive[begin + old]
            if there and _replaceable(rules, alive, variable, old, new, digits, length):
                alive[begin + old] = False
                left[variable] -= 1
                folded = True
    return folded


@entry
def fold(rules, alive, left, variables, most, digits, length):
    """Remove values that others can replace, until there are none; return FOUND for a single state.

    Returns NONE for more states, and GAVE_UP if `most` entries have been read.
    """
    folded = True
    while folded:
        folded = False
        for k in range(len(variables)):
            if left[variables[k]] > 1:
                own = _fold_variable(rules, alive, left, variables[k], digits, length)
                folded = folded or own
            if length[VISITS] > most:
                return GAVE_UP
    for k in range(len(variables)):
        if left[variables[k]] > 1:
            return NONE
    return FOUND
