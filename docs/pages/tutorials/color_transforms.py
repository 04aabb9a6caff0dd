# %% [markdown]
# # Colour transforms and illuminants
#
# Two cameras differ in their sensitivities. A 3×3 matrix, the inter-camera colour transform, maps
# the colours of one to those of the other approximately, and it depends on the illuminant. This
# tutorial uses measured spectra: the illuminants, surfaces and two cameras of the package
# colour-science (`pip install ".[experiments]"`).

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from everlight import plots
from everlight.color import (
    chromaticity_to_illuminant,
    color_moments,
    fit_color_transform,
    fit_linear_regression,
    illuminant_to_chromaticity,
    linear_estimate,
)
from everlight.metrics import angular_error
from everlight_data.color.rendered.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.spectra.library import WAVELENGTHS, embedded_library

library = embedded_library()
print(library.note)

# %% [markdown]
# ## The same illuminants in two cameras
#
# The illuminant is the camera's response to a perfect reflector. The line is the locus of black
# bodies.

# %%
canvas, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for panel, name in zip(panels, library.camera_names, strict=True):
    sensitivity = library.sensitivity(name)
    responses = {"illuminants": library.illuminants @ sensitivity.T}
    plots.plot_chromaticity(responses, (WAVELENGTHS, sensitivity), panel).set_title(name)

# %% [markdown]
# ## Scenes
#
# A scene is one illuminant on 24 surfaces. The illuminants are seen ones: every illuminant of the
# test scenes also occurs in training scenes.

# %%
scenes = draw_scenes(library, RadiometricSettings(scenes=4_000))
main, second = (
    jax.tree.map(jnp.asarray, photograph(library, name, scenes)) for name in library.camera_names
)
print(main.colors.shape, main.illuminants.shape)

# %% [markdown]
# ## The transform depends on the illuminant
#
# `fit_color_transform` takes one scene; `vmap` applies it to all. With `normalize="scale"` the
# matrix is divided by its mean row sum, which removes both exposures. The plots show its diagonal
# against the illuminant.

# %%
fit = jax.jit(jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="scale")))
fitted = fit(main.colors, second.colors)
print("scenes with a transform:", int(fitted.valid.sum()), "of", len(fitted.valid))

warmth = illuminant_to_chromaticity(main.illuminants)[:, 0]  # R/G of the illuminant
canvas, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for channel, panel in enumerate(panels):
    panel.scatter(warmth, fitted.transform[:, channel, channel], s=2, alpha=0.3)
    panel.set(xlabel="R/G of the illuminant", ylabel=f"entry {'RGB'[channel]} to {'RGB'[channel]}")

# %% [markdown]
# ## Estimating the illuminant
#
# A linear map of the nine entries, fitted to the training scenes, against two estimates from the
# main camera's image alone: Gray World (GW), and a linear map of nine colour moments. Errors are
# angles in degrees.

# %%
moments = jax.jit(jax.vmap(color_moments))(main.colors)
features = {
    "transform": fitted.transform.reshape(-1, 9),
    "moments of one image": moments,
    "both": jnp.concatenate([fitted.transform.reshape(-1, 9), moments], axis=1),
}
truth = main.illuminants[scenes.test]
estimates = {"Gray World": main.colors[scenes.test].mean(axis=1)}
for name, inputs in features.items():
    regression = fit_linear_regression(
        inputs[scenes.train], illuminant_to_chromaticity(main.illuminants[scenes.train])
    )
    estimates[name] = chromaticity_to_illuminant(linear_estimate(regression, inputs[scenes.test]))

errors = {name: np.asarray(jax.vmap(angular_error)(e, truth)) for name, e in estimates.items()}
for name, degrees in errors.items():
    print(f"{name:22} mean {degrees.mean():.2f}  median {np.median(degrees):.2f}")
axes = plots.plot_error_curves({name: degrees[None] for name, degrees in errors.items()})

# %% tags=["check"]
mean = {name: degrees.mean() for name, degrees in errors.items()}
assert mean["both"] < mean["moments of one image"] < mean["transform"]
assert mean["transform"] > mean["Gray World"] - 0.5

# %% [markdown]
# A linear map of the transform alone is hardly better than Gray World here; a network on it is. The
# moments of one image are far better in a linear map, and both together a little better still.
# [Results](../results/index.md) finds the same with networks, noise and unseen illuminants.
# [Two cameras](../guide/two_cameras.md) continues from here.
