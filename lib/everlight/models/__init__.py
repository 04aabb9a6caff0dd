"""Networks as Flax modules, and changes of their parameters."""

from everlight.models.adapters import with_adapters
from everlight.models.augmentation import crop_and_flip
from everlight.models.caffe_nets import (
    HeadInit,
    LinearClassifier,
    MidCaffeNet,
    MidVGG,
    with_weights,
)
from everlight.models.efficientnet import EfficientNetLite0, efficientnet_variables
from everlight.models.feedback_decoder import FeedbackDecoder
from everlight.models.heads import (
    CosineHead,
    LocalSimilarityHead,
    cosines,
    local_similarities,
    make_head,
    unit_vectors,
)
from everlight.models.initialization import with_kaiming, with_layers, with_xavier
from everlight.models.joint_embedding import JointEmbedding
from everlight.models.lora import with_lora, with_merged_lora
from everlight.models.mlp import MLP
from everlight.models.network import NamedNetwork, Network, NetworkRequest
from everlight.models.plain_cnn import PlainCNN
from everlight.models.prompts import (
    Prompting,
    dual_prompts,
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
from everlight.models.resnet18 import ResNet18
from everlight.models.small_cnn import SmallCNN
from everlight.models.vae import VAE
from everlight.models.vit import Prompts, VisionTransformer, interpolate_positions, vit_layers

__all__ = [
    "MLP",
    "VAE",
    "BasicBlock",
    "BottleneckBlock",
    "CosineHead",
    "EfficientNetLite0",
    "FeedbackDecoder",
    "HeadInit",
    "JointEmbedding",
    "LinearClassifier",
    "LocalSimilarityHead",
    "MidCaffeNet",
    "MidVGG",
    "NamedNetwork",
    "Network",
    "NetworkRequest",
    "NormalizedConvolution",
    "PlainCNN",
    "Prompting",
    "Prompts",
    "ReducedResNet",
    "ResNet18",
    "ResNet50",
    "SmallCNN",
    "VisionTransformer",
    "cosines",
    "crop_and_flip",
    "dual_prompts",
    "efficientnet_variables",
    "interpolate_positions",
    "local_similarities",
    "make_head",
    "named_network",
    "networks",
    "prompt_components",
    "prompt_pool",
    "unit_vectors",
    "vit_layers",
    "with_adapters",
    "with_kaiming",
    "with_layers",
    "with_lora",
    "with_merged_lora",
    "with_prompts",
    "with_weights",
    "with_xavier",
]
