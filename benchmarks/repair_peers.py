"""Raha and Baran on one table: run by `repair` with a Python that has raha 1.26.

The arguments are a folder with dirty.csv and clean.csv, the number of labeled rows, and a seed. The
rows that Raha requests labels for are given to Baran as well. The result is printed as JSON.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import resource
import sys
import warnings
from pathlib import Path

import numpy as np


def main(folder: Path, labels: int, seed: int) -> dict:
    import raha

    warnings.filterwarnings("ignore")
    random.seed(seed)
    np.random.seed(seed)
    names = {"path": str(folder / "dirty.csv"), "clean_path": str(folder / "clean.csv")}
    detection = raha.Detection()
    detection.LABELING_BUDGET, detection.VERBOSE, detection.SAVE_RESULTS = labels, False, False
    found = detection.initialize_dataset({"name": folder.name, **names})
    detection.run_strategies(found)
    detection.generate_features(found)
    detection.build_clusters(found)
    while len(found.labeled_tuples) < labels:
        detection.sample_tuple(found)
        detection.label_with_ground_truth(found)
    detection.propagate_labels(found)
    detection.predict_labels(found)
    chosen = [int(row) for row in found.labeled_tuples]
    table = raha.dataset.Dataset({"name": folder.name, **names})
    detected = table.get_data_cleaning_evaluation(found.detected_cells)[:3]
    table.detected_cells = dict(found.detected_cells)
    correction = raha.Correction()
    correction.LABELING_BUDGET, correction.VERBOSE, correction.SAVE_RESULTS = labels, False, False
    table = correction.initialize_dataset(table)
    correction.initialize_models(table)
    for row in chosen:  # instead of rows that Baran would choose
        table.sampled_tuple = row
        correction.label_with_ground_truth(table)
        correction.update_models(table)
        correction.predict_corrections(table)
    corrected = table.get_data_cleaning_evaluation(table.corrected_cells)[-3:]
    return {
        "labeled": chosen,
        "detected": [float(one) for one in detected],
        "corrected": [float(one) for one in corrected],
        "seconds": spent(),
        "versions": {
            name: importlib.metadata.version(name) for name in ("raha", "pandas", "scikit-learn")
        },
    }


def spent() -> float:
    """Processor time of this process and of those that it started."""
    each = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in each)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
