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
from everlight.models.heads import (
    CosineHead,
    LocalSimilarityHead,
    cosines,
    local_similarities,
    make_head,
    unit,
)
from everlight.models.illuminant_batches import (
    BatchTrainer,
    RateChoice,
    TrainedNetworks,
    best_of_rates,
    best_of_restarts,
    index_of_lowest,
    make_batch_trainer,
    predict_batch,
    stack_problems,
)
from everlight.models.illuminant_interval import (
    ChromaticityInterval,
    IntervalCoverage,
    IntervalScale,
    calibrate_interval,
    chromaticity_interval,
    cross_coverage,
    ensemble_chromaticity,
    ensemble_disagreement,
    interval_coverage,
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
from everlight.models.initialization import with_kaiming, with_layers, with_xavier
from everlight.models.joint_embedding import JointEmbedding
from everlight.models.lora import with_lora, with_merged_lora
from everlight.models.mlp import MLP
from everlight.models.network import NamedNetwork, Network, NetworkRequest
from everlight.models.out_of_distribution import (
    DistanceCalibration,
    OutOfDistributionScore,
    calibrate_distances,
    cross_calibrate_distances,
    out_of_distribution_score,
)
from everlight.models.plain_cnn import PlainCNN
from everlight.models.prompts import (
    Prompting,
    prompt_components,
    prompt_pool,
    with_prompts,
)
from everlight.models.registry import named_network, networks
from everlight.models.resnet import (
    BasicBlock,
    BottleneckBlock,
    NormalizedConvolution,
    ReducedResNet,
    ResNet50,
)
from everlight.models.small_cnn import SmallCNN
from everlight.models.vit import Prompts, VisionTransformer, interpolate_positions, vit_layers

__all__ = [
    "MLP",
    "BasicBlock",
    "BatchTrainer",
    "BottleneckBlock",
    "ChromaticityInterval",
    "CosineHead",
    "DistanceCalibration",
    "EfficientNetLite0",
    "HeadInit",
    "IlluminantModel",
    "IlluminantNet",
    "IntervalCoverage",
    "IntervalScale",
    "JointEmbedding",
    "LinearClassifier",
    "LocalSimilarityHead",
    "Losses",
    "MidCaffeNet",
    "MidVGG",
    "NamedNetwork",
    "Network",
    "NetworkRequest",
    "NormalizedConvolution",
    "OutOfDistributionScore",
    "PlainCNN",
    "Problem",
    "Prompting",
    "Prompts",
    "RateChoice",
    "ReducedResNet",
    "ResNet50",
    "SmallCNN",
    "TrainedNetworks",
    "Trainer",
    "TrainingSettings",
    "TrainingState",
    "VisionTransformer",
    "best_of_rates",
    "best_of_restarts",
    "calibrate_distances",
    "calibrate_interval",
    "chromaticity_interval",
    "chromaticity_loss",
    "cosines",
    "crop_and_flip",
    "cross_calibrate_distances",
    "cross_coverage",
    "efficientnet_variables",
    "ensemble_chromaticity",
    "ensemble_disagreement",
    "index_of_lowest",
    "interpolate_positions",
    "interval_coverage",
    "local_similarities",
    "make_batch_trainer",
    "make_head",
    "make_trainer",
    "named_network",
    "networks",
    "out_of_distribution_score",
    "predict_batch",
    "predict_chromaticity",
    "predict_illuminant",
    "prompt_components",
    "prompt_pool",
    "stack_problems",
    "uninformative_interval",
    "unit",
    "vit_layers",
    "with_kaiming",
    "with_layers",
    "with_lora",
    "with_merged_lora",
    "with_prompts",
    "with_weights",
    "with_xavier",
]
