"""Photographs of two made-up cameras: files of pairs whose illuminants are known."""

import imagecodecs
import numpy as np

CAMERA_CHANGE = np.array([[0.85, 0.15, 0.05], [0.2, 0.8, 0.2], [0.03, 0.2, 0.9]])


def scene(rng, side):
    """Return positive colours with structure at several sizes."""
    y, x = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    waves, phases = rng.normal(0, 12 / side, (24, 2)), rng.uniform(0, 6.3, (24, 1))
    hues = phases + rng.normal(0, 0.4, (24, 3))
    angles = (x[..., None] * waves[:, 0] + y[..., None] * waves[:, 1])[..., None]
    return np.exp(0.25 * np.sin(angles + hues).sum(axis=2))


def draw_pairs(rng, count, side=40):
    """Return both cameras' images and illuminants.

    The second camera is turned by 180 degrees, and sees the scene three pixels off.
    """
    images, truth = {"main": [], "second": []}, {"main": [], "second": []}
    for _ in range(count):
        reflected = scene(rng, side + 3)
        illuminant = np.array([rng.uniform(0.4, 1), 1, rng.uniform(0.4, 1)])
        second = reflected @ CAMERA_CHANGE
        views = {"main": reflected[:side, :side] * illuminant}
        second_illuminant = illuminant @ CAMERA_CHANGE
        views["second"] = (second[3:, 3:] * second_illuminant)[::-1, ::-1]
        for view, image in views.items():
            images[view].append(image / image.max())
            truth[view].append({"main": illuminant, "second": second_illuminant}[view])
    return {view: np.float32(images[view]) for view in images}, truth


def write_folder(folder, images, illuminants, prefix):
    """Write PNGs of 16 bits with illuminants.csv."""
    folder.mkdir(parents=True)
    rows = ["file,red,green,blue"]
    for number, (image, illuminant) in enumerate(zip(images, illuminants, strict=True), start=1):
        name = f"{prefix}_{number:03}.png"
        pixels = np.uint16(np.round(image * 65535))
        (folder / name).write_bytes(imagecodecs.png_encode(pixels))
        rows.append(f"{name},{illuminant[0]:.5f},{illuminant[1]:.5f},{illuminant[2]:.5f}")
    (folder / "illuminants.csv").write_text("\n".join(rows) + "\n")
