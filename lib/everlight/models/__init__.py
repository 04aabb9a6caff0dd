"""Flax modules, and training of the illuminant network as pure updates."""

from everlight.models.augmentation import crop_and_flip
from everlight.models.caffe_nets import (
    HeadInit,
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
    uninformative_interval,
)
from everlight.models.illuminant_net import IlluminantNet
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
from everlight.models.named import Network, NetworkRequest, named_network
from everlight.models.out_of_distribution import (
    DistanceCalibration,
    OutOfDistributionScore,
    calibrate_distances,
    out_of_distribution_score,
)
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
    "DistanceCalibration",
    "EfficientNetLite0",
    "HeadInit",
    "IlluminantModel",
    "IlluminantNet",
    "Interval",
    "IntervalScale",
    "JointEmbedding",
    "LinearClassifier",
    "Losses",
    "MidCaffeNet",
    "MidVGG",
    "Network",
    "NetworkRequest",
    "NormalizedConvolution",
    "OutOfDistributionScore",
    "PlainCNN",
    "Problem",
    "ReducedResNet",
    "ResNet50",
    "SmallCNN",
    "Trainer",
    "TrainingSettings",
    "TrainingState",
    "calibrate_distances",
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
    "named_network",
    "out_of_distribution_score",
    "predict_chromaticity",
    "predict_illuminant",
    "uninformative_interval",
    "unit",
    "with_weights",
]
