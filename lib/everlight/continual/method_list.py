"""A list of all methods, a line each: paper, what is kept of earlier tasks, where it applies."""

from typing import Literal, NamedTuple

from everlight.continual.method import Demand, Method
from everlight.continual.registry import METHODS

Kept = Literal["all samples", "samples", "old net", "statistics"]
"""Kind of data that a method keeps of earlier tasks: all their samples or some; weights of an
earlier network or an average of networks; or numbers, such as importances and class means."""


class MethodRow(NamedTuple):
    """A row of the list."""

    name: str
    year: str
    """Year of the paper; empty without one."""
    paper: str
    """Authors and venue."""
    keeps: str
    """Kinds of what is kept of earlier tasks, or nothing."""
    applies: str
    """Requirements of a benchmark, or all benchmarks."""


class _Source(NamedTuple):
    paper: str
    """Authors, year, then venue."""
    keeps: tuple[Kept, ...] = ()


_MKD = _Source("Michel et al. 2024, ICML", ("samples", "old net"))
_ICARL = _Source("Rebuffi et al. 2017, CVPR", ("samples", "old net"))
_IIRC = _Source("Abdelsalam et al. 2021, CVPR", ("samples", "old net"))
_GATE = _Source("Aljundi et al. 2017, CVPR", ("old net",))
_IMM = _Source("Lee et al. 2017, NeurIPS", ("old net", "statistics"))
_CWR = _Source("Lomonaco and Maltoni 2017, CoRL", ("old net",))
# A new method's row stands here beside its row of the registry.
_SOURCES: dict[str, _Source] = {
    "naive": _Source(""),
    "cumulative": _Source("", ("all samples",)),
    "joint": _Source("", ("all samples",)),
    "incremental joint": _Source("Abdelsalam et al. 2021, CVPR", ("all samples",)),
    "EWC": _Source("Kirkpatrick et al. 2017, PNAS", ("old net", "statistics")),
    "online EWC": _Source("Schwarz et al. 2018, ICML", ("old net", "statistics")),
    "SI": _Source("Zenke et al. 2017, ICML", ("old net", "statistics")),
    "MAS": _Source("Aljundi et al. 2018, ECCV", ("old net", "statistics")),
    "LwF": _Source("Li and Hoiem 2016, ECCV", ("old net",)),
    "IMM mean": _IMM,
    "IMM mode": _IMM,
    "task arithmetic": _Source("Ilharco et al. 2023, ICLR", ("old net",)),
    "TIES": _Source("Yadav et al. 2023, NeurIPS", ("old net",)),
    "CoFiMA": _Source("Marouf et al. 2024, ECCV", ("old net", "statistics")),
    "GPM": _Source("Saha et al. 2021, ICLR", ("statistics",)),
    "TRGP": _Source("Lin et al. 2022, ICLR", ("statistics",)),
    "ER-balanced": _Source("Abdelsalam et al. 2021, CVPR", ("samples",)),
    "ER": _Source("Chaudhry et al. 2019, arXiv 1902.10486", ("samples",)),
    "ER-infinite": _Source("Abdelsalam et al. 2021, CVPR", ("all samples",)),
    "DER": _Source("Buzzega et al. 2020, NeurIPS", ("samples",)),
    "DER++": _Source("Buzzega et al. 2020, NeurIPS", ("samples",)),
    "MIR": _Source("Aljundi et al. 2019, NeurIPS", ("samples",)),
    "ER-ACE": _Source("Caccia et al. 2022, ICLR", ("samples",)),
    "ER-AML": _Source("Caccia et al. 2022, ICLR", ("samples",)),
    "SCR": _Source("Mai et al. 2021, CVPRW", ("samples",)),
    "OnPro": _Source("Wei et al. 2023, ICCV", ("samples",)),
    "ER-tricks": _Source("Buzzega et al. 2020, ICPR", ("samples",)),
    "X-DER-RPC": _Source("Boschini et al. 2022, TPAMI", ("samples",)),
    "CLS-ER": _Source("Arani et al. 2022, ICLR", ("samples", "old net")),
    "ER-MKD": _MKD,
    "ER-ACE-MKD": _MKD,
    "DER++-MKD": _MKD,
    "GDumb": _Source("Prabhu et al. 2020, ECCV", ("samples",)),
    "A-GEM": _Source("Chaudhry et al. 2019, ICLR", ("samples",)),
    "GEM": _Source("Lopez-Paz and Ranzato 2017, NeurIPS", ("samples",)),
    "HAL": _Source("Chaudhry et al. 2021, AAAI", ("samples", "statistics")),
    "iCaRL": _ICARL,
    "iCaRL-CNN": _IIRC,
    "iCaRL-norm": _IIRC,
    "LUCIR": _Source("Hou et al. 2019, CVPR", ("samples", "old net")),
    "PODNet": _Source("Douillard et al. 2020, ECCV", ("samples", "old net")),
    "BiC": _Source("Wu et al. 2019, CVPR", ("samples", "old net")),
    "APER": _Source("Zhou et al. 2024, IJCV", ("old net", "statistics")),
    "WA": _Source("Zhao et al. 2020, CVPR", ("samples", "old net")),
    "SS-IL": _Source("Ahn et al. 2021, ICCV", ("samples", "old net")),
    "BiC-whole-pwJS": _Source("Wu et al. 2019, CVPR", ("samples", "old net")),
    "ExpertGate": _GATE,
    "ExpertGate-LwF": _GATE,
    "PackNet": _Source("Mallya and Lazebnik 2018, CVPR", ("statistics",)),
    "HAT": _Source("Serrà et al. 2018, ICML", ("statistics",)),
    "CBP": _Source("Dohare et al. 2024, Nature", ("statistics",)),
    "ReDo": _Source("Sokar et al. 2023, ICML", ("statistics",)),
    "shrink and perturb": _Source("Ash and Adams 2020, NeurIPS"),
    "L2 Init": _Source("Kumar et al. 2023, arXiv 2308.11958", ("old net",)),
    "CWR": _CWR,
    "CWR as coded": _CWR,
    "CWR+": _Source("Maltoni and Lomonaco 2019, Neural Networks", ("old net",)),
    "CWR*": _Source("Lomonaco et al. 2020, CVPRW", ("old net",)),
    "streaming LDA": _Source("Hayes and Kanan 2020, CVPRW", ("statistics",)),
    "nearest mean": _Source("Mensink et al. 2013, PAMI", ("statistics",)),
    "SimpleCIL": _Source("Zhou et al. 2024, IJCV", ("statistics",)),
    "FeCAM": _Source("Goswami et al. 2023, NeurIPS", ("statistics",)),
    "RanDumb": _Source("Prabhu et al. 2024, NeurIPS", ("statistics",)),
    "RanPAC": _Source("McDonnell et al. 2023, NeurIPS", ("statistics",)),
    "ACIL": _Source("Zhuang et al. 2022, NeurIPS", ("statistics",)),
    "DS-AL": _Source("Zhuang et al. 2024, AAAI", ("statistics",)),
    "SLCA": _Source("Zhang et al. 2023, ICCV", ("statistics",)),
    "L2P": _Source("Wang et al. 2022, CVPR"),
    "CODA-Prompt": _Source("Smith et al. 2023, CVPR"),
    "LoRA": _Source("Hu et al. 2022, ICLR"),
    "InfLoRA": _Source("Liang and Li 2024, CVPR", ("statistics",)),
}
_WORDS: dict[Demand, str] = {
    "task-incremental": "task identity at test",
    "several labels": "several labels",
    "own classes": "own classes",
    "one label": "one label",
    "hidden layers": "named hidden layers",
    "pretrained transformer": "a pretrained vision transformer",
}
"""Requirements that decide on which benchmarks a method runs, and networks of which kind."""


def method_rows() -> list[MethodRow]:
    """Return a row per method, in the order of the registry."""
    return [_row(name, method, _SOURCES[name]) for name, method in METHODS.items()]


def _row(name: str, method: Method, source: _Source) -> MethodRow:
    reference, _, venue = source.paper.partition(", ")
    authors, _, year = reference.rpartition(" ")
    paper = f"{authors}, {venue}" if authors else ""
    features = ["pretrained features"] if method.trains == "head" else []
    needed = features + [word for demand, word in _WORDS.items() if demand in method.demands]
    kept = ", ".join(source.keeps) or "nothing"
    return MethodRow(name, year, paper, kept, ", ".join(needed) or "all benchmarks")
