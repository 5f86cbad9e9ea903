"""Examples of every command, which end its help."""

from __future__ import annotations

EXAMPLES = {
    "demo": ["ssdml demo", "ssdml demo --small --out trial"],
    "compare": [
        "ssdml compare --dataset digits --out digits",
        "ssdml compare --dataset table.csv --labels-per-class 2,5,10 --seeds 5 --out compared",
        "ssdml compare --dataset table.csv --methods input,logistic,ssdml --out compared --resume",
    ],
    "study": [
        "ssdml study table.csv --out study",
        "ssdml study digits table.csv --budgets 1,5,20,all --noise 0,0.1 --out study --n-jobs -1",
    ],
    "status": ["ssdml status study"],
    "report": ["ssdml report study"],
    "table": [
        "ssdml table study --format latex --figures pdf > table.tex",
        "ssdml table study --format csv --scores NMI,MAP@R",
    ],
    "label": [
        "ssdml label reviews.csv --out labeled.csv",
        "ssdml label reviews.csv --text review --label sentiment --out labeled.xlsx",
        "ssdml label photos/ --out labeled.csv",
    ],
    "fit": [
        "ssdml fit table.csv --out model",
        "ssdml fit X.npy y.npy --out model",
        "ssdml fit images.npz --network cifar --epochs 20 --checkpoints checkpoints --out model",
    ],
    "transform": ["ssdml transform model new.csv --out embedded.csv"],
    "predict": ["ssdml predict model new.csv --out labels.csv"],
    "next": ["ssdml next model table.csv -n 20 --out next.csv"],
    "evaluate": [
        "ssdml evaluate embedded.npy y.npy",
        "ssdml evaluate table.csv --scores R@1,MAP@R --json",
    ],
    "plan": ["ssdml plan --n 100000 --d 64 --classes 100", "ssdml plan --like X.npy"],
    "datasets": ["ssdml datasets"],
}


def examples(command: str) -> str:
    """Return the examples of a command, each a paragraph, as the help wants them."""
    shown = EXAMPLES[command]
    return "\n\n".join([f"Example{'s' * (len(shown) > 1)}:", *shown])
