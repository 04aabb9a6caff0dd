"""Flax modules, and the illuminant net's training as pure updates."""

from everlight.models.augmentation import crop_and_flip
from everlight.models.caffe_nets import (
    HeadStart,
    LinearClassifier,
    MidCaffeNet,
    MidVGG,
    with_weights,
)
from everlight.models.efficientnet import EfficientNetLite0, efficientnet_variables
from everlight.models.heads import CosineHead, cosines, make_head, unit
from everlight.models.illuminant_interval import (
    Interval,
    IntervalScale,
    calibrate_interval,
    chromaticity_interval,
    ensemble_chromaticity,
    ensemble_disagreement,
    uninformed_interval,
)
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_novelty import Familiarity, Novelty, calibrate, novelty
from everlight.models.illuminant_training import (
    IlluminantModel,
    Losses,
    Problem,
    Trainer,
    TrainingSettings,
    TrainingState,
    chromaticity_loss,
    make_trainer,
    predict_chromaticity,
    predict_illuminant,
)
from everlight.models.joint_embedding import JointEmbedding
from everlight.models.mlp import MLP
from everlight.models.plain_cnn import PlainCNN
from everlight.models.resnet import (
    BasicBlock,
    BottleneckBlock,
    NormalizedConvolution,
    ReducedResNet,
    ResNet50,
)
from everlight.models.small_cnn import SmallCNN

__all__ = [
    "MLP",
    "BasicBlock",
    "BottleneckBlock",
    "CosineHead",
    "EfficientNetLite0",
    "Familiarity",
    "HeadStart",
    "IlluminantModel",
    "IlluminantNet",
    "Interval",
    "IntervalScale",
    "JointEmbedding",
    "LinearClassifier",
    "Losses",
    "MidCaffeNet",
    "MidVGG",
    "NormalizedConvolution",
    "Novelty",
    "PlainCNN",
    "Problem",
    "ReducedResNet",
    "ResNet50",
    "SmallCNN",
    "Trainer",
    "TrainingSettings",
    "TrainingState",
    "calibrate",
    "calibrate_interval",
    "chromaticity_interval",
    "chromaticity_loss",
    "cosines",
    "crop_and_flip",
    "efficientnet_variables",
    "ensemble_chromaticity",
    "ensemble_disagreement",
    "make_head",
    "make_trainer",
    "novelty",
    "predict_chromaticity",
    "predict_illuminant",
    "uninformed_interval",
    "unit",
    "with_weights",
]
