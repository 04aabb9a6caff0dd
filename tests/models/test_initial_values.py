"""Initial values of nets equal closed forms of the papers and the authors' definitions."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.caffe_nets import CAFFE_HEAD, VGG_HEAD, LinearClassifier, MidCaffeNet, MidVGG
from everlight.models.layers.convolution import Convolution
from everlight.models.resnet import HE_NORMAL_OUT, BasicBlock, BottleneckBlock, ResNet50

NETS = {"caffe": (MidCaffeNet, CAFFE_HEAD), "vgg": (MidVGG, VGG_HEAD)}
# Standard deviations and biases of the authors' definitions: fc6, fc7 and fc8.
DENSE = {
    "caffe": {"fc6": (0.005, 1), "fc7": (0.005, 1), "head": (0.01, 0)},
    "vgg": {"fc6": (0.005, 1), "fc7": (0.005, 1), "head": (0.005, 1)},
}
IMAGES = jnp.zeros((1, 32, 32, 3))
each_net = pytest.mark.parametrize("name", NETS)


def begin(net, *shape):
    images = jnp.zeros((1, *shape))
    return jax.jit(lambda key: net.init(key, images, False)["params"])(jax.random.key(1))


def assert_normal(values, deviation):
    """Check moments 1, 2 and 4 to five standard errors; the fourth excludes a cut distribution."""
    unit = np.float64(values).ravel() / deviation
    for power, moment, error in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        result = np.mean(unit**power)
        assert abs(result - moment) < 5 * np.sqrt(error / unit.size), (power, result)


@each_net
def test_fully_connected_layers_begin_as_in_the_authors_definitions(name):
    params = begin(NETS[name][0](50, (512, 512)), 48, 48, 3)
    for layer, (deviation, bias) in DENSE[name].items():
        assert_normal(params[layer]["kernel"], deviation)
        np.testing.assert_array_equal(params[layer]["bias"], bias)


@each_net
def test_the_head_alone_begins_as_the_net_s(name):
    deviation, bias = DENSE[name]["head"]
    head = begin(LinearClassifier(50, NETS[name][1]), 200)["head"]
    assert_normal(head["kernel"], deviation)
    np.testing.assert_array_equal(head["bias"], bias)


def test_kernels_of_the_reduced_net_have_the_variance_of_he_2015():
    """The variance is 2 / fan in, equation 10."""
    params = begin(BasicBlock(64, 2), 8, 8, 32)
    for name, fan_in in (("NormalizedConvolution_1", 9 * 64), ("shortcut", 32)):
        kernel = params[name]["Convolution_0"]["kernel"]
        assert np.var(kernel) == pytest.approx(2 / fan_in, rel=0.06)


def test_resnet_50_s_kernels_begin_as_torchvision_s():
    """They are normal and not cut, with variance 2 / fan out (He et al. 2015, equation 14)."""
    params = begin(BottleneckBlock(64, 2), 8, 8, 128)
    kernels = [leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 4]
    assert len(kernels) == 4
    for kernel in kernels:
        assert_normal(kernel, np.sqrt(2 / (kernel.shape[0] ** 2 * kernel.shape[-1])))


def test_all_kernels_of_resnet_50_begin_alike():
    began = []

    def record(call, args, kwargs, context):
        if isinstance(context.module, Convolution):
            began.append(context.module.kernel_init)
        return call(*args, **kwargs)

    with nn.intercept_methods(record):
        jax.eval_shape(lambda: ResNet50(2).init(jax.random.key(0), IMAGES, False))
    assert len(began) == 53
    assert set(began) == {HE_NORMAL_OUT}
