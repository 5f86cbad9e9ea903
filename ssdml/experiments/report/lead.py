"""The first sentence of the report."""

from __future__ import annotations

import math

from ssdml.experiments.analysis.tables import ScoreTable

SIMPLER = {  # methods that a reader would try instead, as the sentence calls them
    "logistic": "logistic regression",
    "input": "the nearest class mean in the input",
}


def lead(table: ScoreTable) -> str:
    """Say how many of 100 test samples the best embedding classifies correctly.

    It is compared with the best other method and with simpler ones. Empty if no accuracy is known.

    Examples
    --------
    >>> from ssdml.experiments.analysis.tables import score_table
    >>> rows = [
    ...     {"method": name, "scores": {"NMI": 9.0, "R@1": r, "accuracy": a}, "seed": 0}
    ...     | {"dataset": "d", "labels_per_class": 5, "n_train": 9, "n_labeled": 5, "n_test": 9}
    ...     | {"seconds": {"fit": 0, "transform": 0}, "peak_rss_mb": 1, "status": "ok"}
    ...     for name, r, a in [("input", 80.0, 84.2), ("ssdml", 90.0, 95.1)]
    ... ]
    >>> lead(score_table(rows[1:]))
    'ssdml classifies 95 of 100 new samples correctly.'
    >>> lead(score_table(rows)).partition(": ")[2]
    '11 more than the nearest class mean in the input.'
    >>> poisson = rows[1] | {"method": "poisson", "scores": {"accuracy": 94.2}}
    >>> lead(score_table([*rows, poisson])).partition(": ")[2]
    '1 more than poisson, the best other method, 11 more than the nearest class mean in the input.'
    """
    accuracy = {line.method: line.scores["accuracy"].estimate.mean for line in table.lines}
    best = table.ranked[0].method
    if math.isnan(accuracy[best]):
        return ""
    found = round(accuracy[best])
    others = {m: a for m, a in accuracy.items() if m != best and not math.isnan(a)}
    named = {name: SIMPLER[name] for name in SIMPLER if name in others}
    rival = max(others, key=lambda name: others[name], default=None)
    if rival is not None and rival not in SIMPLER:
        named = {rival: f"{rival}, the best other method"} | named
    gaps = [f"{_more(found - round(others[method]))} {name}" for method, name in named.items()]
    ending = f": {', '.join(gaps)}." if gaps else "."
    return f"{best} classifies {found} of 100 new samples correctly{ending}"


def _more(gap: int) -> str:
    if gap == 0:
        return "as many as"
    return f"{abs(gap)} {'more' if gap > 0 else 'fewer'} than"
