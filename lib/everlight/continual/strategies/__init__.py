"""Continual-learning strategies, one per file, and their common parts.

A public function has two lines in this file, its import and its name, which editors and linters
read without running the package.
"""

from everlight.continual.strategies.acil import acil
from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.aper import aper
from everlight.continual.strategies.ar1 import ar1
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.brain_inspired_replay import brain_inspired_replay
from everlight.continual.strategies.cls_er import cls_er
from everlight.continual.strategies.coda_prompt import coda_prompt
from everlight.continual.strategies.cofima import cofima
from everlight.continual.strategies.continual_backprop import continual_backprop
from everlight.continual.strategies.cumulative import cumulative, joint
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.der import der
from everlight.continual.strategies.der_plus_plus import der_plus_plus
from everlight.continual.strategies.drift_compensation import drift_compensation
from everlight.continual.strategies.ds_al import ds_al
from everlight.continual.strategies.dual_prompt import dual_prompt
from everlight.continual.strategies.ease import ease
from everlight.continual.strategies.er_ace import er_ace
from everlight.continual.strategies.er_aml import er_aml
from everlight.continual.strategies.er_tricks import er_tricks
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.expandable_representation import expandable_representation
from everlight.continual.strategies.experience_replay import experience_replay
from everlight.continual.strategies.expert_gate import expert_gate
from everlight.continual.strategies.fdr import fdr
from everlight.continual.strategies.feature_translation import feature_translation
from everlight.continual.strategies.fecam import fecam
from everlight.continual.strategies.fromp import fromp
from everlight.continual.strategies.gdumb import gdumb
from everlight.continual.strategies.gem import gem
from everlight.continual.strategies.generative_classifier import generative_classifier
from everlight.continual.strategies.generative_replay import generative_replay
from everlight.continual.strategies.gpm import gpm
from everlight.continual.strategies.hal import hal
from everlight.continual.strategies.hat import hat
from everlight.continual.strategies.icarl import icarl
from everlight.continual.strategies.imm import imm
from everlight.continual.strategies.inflora import inflora
from everlight.continual.strategies.l2_init import l2_init
from everlight.continual.strategies.l2p import l2p
from everlight.continual.strategies.latent_replay import latent_replay
from everlight.continual.strategies.lucir import lucir
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.mas import mas
from everlight.continual.strategies.memo import memo
from everlight.continual.strategies.mir import mir
from everlight.continual.strategies.mkd import mkd
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.nearest_mean import nearest_mean
from everlight.continual.strategies.ocm import ocm
from everlight.continual.strategies.onpro import onpro
from everlight.continual.strategies.packnet import packnet
from everlight.continual.strategies.parts.replay_tricks import (
    predict_by_nearest_mean,
    review_memory,
)
from everlight.continual.strategies.pcr import pcr
from everlight.continual.strategies.pnn import pnn
from everlight.continual.strategies.podnet import podnet
from everlight.continual.strategies.prototype_augmentation import prototype_augmentation
from everlight.continual.strategies.randumb import randumb
from everlight.continual.strategies.ranpac import ranpac
from everlight.continual.strategies.redo import redo
from everlight.continual.strategies.rwalk import rwalk
from everlight.continual.strategies.scr import scr
from everlight.continual.strategies.separate_networks import separate_networks
from everlight.continual.strategies.shrink_and_perturb import shrink_and_perturb
from everlight.continual.strategies.si import si
from everlight.continual.strategies.simple_cil import simple_cil
from everlight.continual.strategies.slca import slca
from everlight.continual.strategies.ss_il import ss_il
from everlight.continual.strategies.streaming_lda import streaming_lda
from everlight.continual.strategies.task_arithmetic import task_arithmetic
from everlight.continual.strategies.ties import ties
from everlight.continual.strategies.trgp import trgp
from everlight.continual.strategies.unlimited_replay import unlimited_replay
from everlight.continual.strategies.wa import wa
from everlight.continual.strategies.xder_rpc import xder_rpc
from everlight.continual.strategies.xdg import xdg

__all__ = [
    "acil",
    "agem",
    "aper",
    "ar1",
    "balanced_replay",
    "bic",
    "brain_inspired_replay",
    "cls_er",
    "coda_prompt",
    "cofima",
    "continual_backprop",
    "cumulative",
    "cwr",
    "der",
    "der_plus_plus",
    "drift_compensation",
    "ds_al",
    "dual_prompt",
    "ease",
    "er_ace",
    "er_aml",
    "er_tricks",
    "ewc",
    "expandable_representation",
    "experience_replay",
    "expert_gate",
    "fdr",
    "feature_translation",
    "fecam",
    "fromp",
    "gdumb",
    "gem",
    "generative_classifier",
    "generative_replay",
    "gpm",
    "hal",
    "hat",
    "icarl",
    "imm",
    "inflora",
    "joint",
    "l2_init",
    "l2p",
    "latent_replay",
    "lucir",
    "lwf",
    "mas",
    "memo",
    "mir",
    "mkd",
    "naive",
    "nearest_mean",
    "ocm",
    "onpro",
    "packnet",
    "pcr",
    "pnn",
    "podnet",
    "predict_by_nearest_mean",
    "prototype_augmentation",
    "randumb",
    "ranpac",
    "redo",
    "review_memory",
    "rwalk",
    "scr",
    "separate_networks",
    "shrink_and_perturb",
    "si",
    "simple_cil",
    "slca",
    "ss_il",
    "streaming_lda",
    "task_arithmetic",
    "ties",
    "trgp",
    "unlimited_replay",
    "wa",
    "xder_rpc",
    "xdg",
]
