"""Continual-learning strategies, one per file, and their common parts."""

from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.cls_er import cls_er
from everlight.continual.strategies.cumulative import cumulative, joint, unlimited_replay
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.der import der
from everlight.continual.strategies.der_plus_plus import der_plus_plus
from everlight.continual.strategies.er_ace import er_ace
from everlight.continual.strategies.er_tricks import er_tricks
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.experience_replay import experience_replay
from everlight.continual.strategies.expert_gate import expert_gate
from everlight.continual.strategies.gdumb import gdumb
from everlight.continual.strategies.gem import gem
from everlight.continual.strategies.hal import hal
from everlight.continual.strategies.hat import hat
from everlight.continual.strategies.icarl import icarl
from everlight.continual.strategies.imm import imm
from everlight.continual.strategies.lucir import lucir
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.mas import mas
from everlight.continual.strategies.mkd import mkd
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.nearest_mean import nearest_mean
from everlight.continual.strategies.packnet import packnet
from everlight.continual.strategies.ranpac import ranpac
from everlight.continual.strategies.si import si
from everlight.continual.strategies.streaming_lda import streaming_lda
from everlight.continual.strategies.xder_rpc import xder_rpc

__all__ = [
    "agem",
    "balanced_replay",
    "bic",
    "cls_er",
    "cumulative",
    "cwr",
    "der",
    "der_plus_plus",
    "er_ace",
    "er_tricks",
    "ewc",
    "experience_replay",
    "expert_gate",
    "gdumb",
    "gem",
    "hal",
    "hat",
    "icarl",
    "imm",
    "joint",
    "lucir",
    "lwf",
    "mas",
    "mkd",
    "naive",
    "nearest_mean",
    "packnet",
    "ranpac",
    "si",
    "streaming_lda",
    "unlimited_replay",
    "xder_rpc",
]
