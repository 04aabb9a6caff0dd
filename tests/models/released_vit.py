"""Arrays of a vision transformer under the names and shapes of Google's release, and its output.

Both are written from `vit_jax/models_vit.py` and not from everlight's network.
"""

import numpy as np


def released_arrays(net, grid, rng, channels=3, head=7):
    """Draw arrays of a network of some sizes, whose positions are of grid x grid patches."""
    width, item = net.width, net.width // net.heads

    def drawn(*shape):
        return rng.normal(size=shape).astype(np.float32) * 0.3

    arrays = {
        "embedding/kernel": drawn(net.patch, net.patch, channels, width),
        "embedding/bias": drawn(width),
        "cls": drawn(1, 1, width),
        "Transformer/posembed_input/pos_embedding": drawn(1, 1 + grid**2, width),
        "Transformer/encoder_norm/scale": 1 + drawn(width),
        "Transformer/encoder_norm/bias": drawn(width),
        "pre_logits/kernel": drawn(width, width),
        "pre_logits/bias": drawn(width),
        "head/kernel": drawn(width, head),
        "head/bias": drawn(head),
    }
    for number in range(net.depth):
        block = f"Transformer/encoderblock_{number}"
        for norm in ("LayerNorm_0", "LayerNorm_2"):
            arrays[f"{block}/{norm}/scale"] = 1 + drawn(width)
            arrays[f"{block}/{norm}/bias"] = drawn(width)
        for part in ("query", "key", "value"):
            name = f"{block}/MultiHeadDotProductAttention_1/{part}"
            arrays[f"{name}/kernel"] = drawn(width, net.heads, item)
            arrays[f"{name}/bias"] = drawn(net.heads, item)
        name = f"{block}/MultiHeadDotProductAttention_1/out"
        arrays[f"{name}/kernel"] = drawn(net.heads, item, width)
        arrays[f"{name}/bias"] = drawn(width)
        for layer, sizes in (("0", (width, net.mlp_width)), ("1", (net.mlp_width, width))):
            arrays[f"{block}/MlpBlock_3/Dense_{layer}/kernel"] = drawn(*sizes)
            arrays[f"{block}/MlpBlock_3/Dense_{layer}/bias"] = drawn(sizes[1])
    return arrays


def features_in_numpy(arrays, image, class_token=True, prompts=(), prefixes=(), parallel=()):
    """Return features of an image [h, w, c] in float64: one head, one token at a time.

    `prompts` are tokens, [p, w], before the first block, whose mean output then is the result;
    `prefixes` are keys and values, [2, p, w], of the first blocks; outputs of the functions
    `parallel` are added to those of the MLPs.
    """
    arrays = {name: np.float64(array) for name, array in arrays.items()}

    def norm(token, name):
        centered = token - token.mean()
        scaled = centered / np.sqrt((centered**2).mean() + 1e-6)
        return scaled * arrays[f"{name}/scale"] + arrays[f"{name}/bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    kernel = arrays["embedding/kernel"]
    side = len(kernel)
    tokens = [arrays["cls"][0, 0]] if class_token else []
    for row in range(0, image.shape[0], side):
        for column in range(0, image.shape[1], side):
            patch = image[row : row + side, column : column + side]
            tokens.append(np.tensordot(patch, kernel, 3) + arrays["embedding/bias"])
    tokens = np.array(tokens) + arrays["Transformer/posembed_input/pos_embedding"][0]
    if len(prompts):
        tokens = np.array([*prompts, *tokens])
    number = 0
    while f"Transformer/encoderblock_{number}/LayerNorm_0/scale" in arrays:
        block = f"Transformer/encoderblock_{number}"
        inner = f"{block}/MultiHeadDotProductAttention_1"
        normed = np.array([norm(token, f"{block}/LayerNorm_0") for token in tokens])
        attended = np.zeros_like(tokens) + arrays[f"{inner}/out/bias"]
        for head in range(arrays[f"{inner}/query/kernel"].shape[1]):
            query, key, value = (
                normed @ arrays[f"{inner}/{part}/kernel"][:, head]
                + arrays[f"{inner}/{part}/bias"][head]
                for part in ("query", "key", "value")
            )
            if number < len(prefixes):
                rows = slice(head * query.shape[1], (head + 1) * query.shape[1])
                key = np.array([*prefixes[number][0][:, rows], *key])
                value = np.array([*prefixes[number][1][:, rows], *value])
            scores = np.exp(query @ key.T / np.sqrt(query.shape[1]))
            weights = scores / scores.sum(axis=1, keepdims=True)
            attended += weights @ value @ arrays[f"{inner}/out/kernel"][head]
        tokens = tokens + attended
        normed = np.array([norm(token, f"{block}/LayerNorm_2") for token in tokens])
        first, second = (f"{block}/MlpBlock_3/Dense_{layer}" for layer in (0, 1))
        hidden = gelu(normed @ arrays[f"{first}/kernel"] + arrays[f"{first}/bias"])
        added = parallel[number](tokens) if parallel else 0
        tokens = tokens + hidden @ arrays[f"{second}/kernel"] + arrays[f"{second}/bias"] + added
        number += 1
    normed = np.array([norm(token, "Transformer/encoder_norm") for token in tokens])
    if len(prompts):
        return normed[: len(prompts)].mean(axis=0)
    return normed[0] if class_token else normed.mean(axis=0)
