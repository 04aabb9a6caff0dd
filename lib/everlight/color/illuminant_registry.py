"""All methods that estimate one illuminant per image, by name, collected from their files.

    method = ILLUMINANT_METHODS["FFCC"]
    features = jax.vmap(method.features)(images, masks)
    labelled = LabelledImages(features, illuminants, jnp.zeros(len(images), int))
    parameters = method.fit(labelled, SideInformation())
    estimates = jax.vmap(method.predict, (None, 0))(parameters, features)

Features depend on no other image, so several fits and cross-validation folds share them. A method
whose `features` is None reads more than pixels, and has `set_features` of all images instead.
"""

from everlight.color import estimators, learned
from everlight.color.illuminant_method import IlluminantMethod, SideInformation
from everlight.declared_rows import declared_rows

ILLUMINANT_METHODS: dict[str, IlluminantMethod] = declared_rows((estimators, learned), "METHODS")
"""Methods by the names that their papers give them; those without training come first. The scale
of an image does not matter to its estimate."""

ESTIMATORS = {name: row for name, row in ILLUMINANT_METHODS.items() if not row.is_trained}
"""The methods that need no training, functions of an image and its mask."""


def methods_for(side: SideInformation) -> dict[str, IlluminantMethod]:
    """Return the methods with a row for these images, including those that cannot run on them."""
    return {name: row for name, row in ILLUMINANT_METHODS.items() if row.applies(side)}
