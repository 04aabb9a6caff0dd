# %% [markdown]
# # Colour transforms and light
#
# Two cameras differ in their sensitivities. What takes the colours of one to those of the other is
# nearly a 3×3 matrix, and which matrix depends on the light. Here this is looked at with measured
# spectra: the lights, surfaces and two cameras that colour-science ships
# (`pip install ".[experiments]"`).

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from data_pipelines.color.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.color.spectra import WAVELENGTHS, embedded_library
from everlight import plots
from everlight.color import (
    color_moments,
    fit_color_transform,
    fit_linear_regression,
    from_chromaticity,
    linear_estimate,
    to_chromaticity,
)
from everlight.metrics import angular_error

library = embedded_library()
print(library.note)

# %% [markdown]
# ## The same lights in two cameras
#
# A light is what a perfect reflector sends into the camera. The line is where black bodies lie.

# %%
canvas, panels = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for panel, name in zip(panels, library.camera_names, strict=True):
    sensitivity = library.sensitivity(name)
    lights = library.illuminants @ sensitivity.T
    plots.plot_chromaticity({"lights": lights}, (WAVELENGTHS, sensitivity), panel).set_title(name)

# %% [markdown]
# ## Scenes
#
# A scene is one light on 24 surfaces. Every light of the test scenes also lit some of the training
# scenes.

# %%
scenes = draw_scenes(library, RadiometricSettings(scenes=4_000))
main, second = (
    jax.tree.map(jnp.asarray, photograph(library, name, scenes)) for name in library.camera_names
)
print(main.colors.shape, main.illuminants.shape)

# %% [markdown]
# ## What the transform says of the light
#
# `fit_color_transform` takes one scene; `vmap` makes it all of them. With `normalize="scale"` the
# matrix is divided by its mean row sum, so that exposures have no part in it. How well do the
# matrices reproduce the second camera's colours, and what do they say of the light?

# %%
fit = jax.jit(jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="scale")))
fitted = fit(main.colors, second.colors)
print("scenes with a transform:", int(fitted.valid.sum()), "of", len(fitted.valid))

warmth = to_chromaticity(main.illuminants)[:, 0]  # R/G of the light
canvas, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
for channel, panel in enumerate(panels):
    panel.scatter(warmth, fitted.transform[:, channel, channel], s=2, alpha=0.3)
    panel.set(xlabel="R/G of the light", ylabel=f"entry {'RGB'[channel]} to {'RGB'[channel]}")

# %% [markdown]
# ## Estimating the light
#
# A linear map of the nine entries, learnt on the training scenes, against two that see the main
# camera's image alone: gray world, and a linear map of nine colour moments. Errors are angles in
# degrees.

# %%
moments = jax.jit(jax.vmap(color_moments))(main.colors)
features = {
    "transform": fitted.transform.reshape(-1, 9),
    "moments of one image": moments,
    "both": jnp.concatenate([fitted.transform.reshape(-1, 9), moments], axis=1),
}
truth = main.illuminants[scenes.test]
estimates = {"gray world": main.colors[scenes.test].mean(axis=1)}
for name, each in features.items():
    regression = fit_linear_regression(
        each[scenes.train], to_chromaticity(main.illuminants[scenes.train])
    )
    estimates[name] = from_chromaticity(linear_estimate(regression, each[scenes.test]))

errors = {name: np.asarray(jax.vmap(angular_error)(e, truth)) for name, e in estimates.items()}
for name, degrees in errors.items():
    print(f"{name:22} mean {degrees.mean():.2f}  median {np.median(degrees):.2f}")
axes = plots.plot_error_curves({name: degrees[None] for name, degrees in errors.items()})

# %% [markdown]
# A linear map of the transform alone is hardly better than gray world here; it takes a net to read
# it. One image's moments tell a linear map far more, and both together are a little better: which
# is what [Results](../results.md) finds with nets, noise and lights that
# were never seen. [Two cameras](../guide/two_cameras.md) goes on from here.
