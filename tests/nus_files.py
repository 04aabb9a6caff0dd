"""Writes two cameras of a small made-up world in the format of the NUS release."""

import imagecodecs
import numpy as np
import scipy.io

BLACK, WHITE = 1024, 15000
MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"


def render(rng, count):
    """Render surfaces of a three-dimensional family under `count` illuminants in two cameras.

    Three dimensions of surfaces make the transform between the cameras exact under every illuminant
    and different for each: main = s M_i, second = s N_i, T_i = inv(M_i) N_i in float64.
    """
    family = rng.uniform(0.1, 1, (3, 8)) * np.exp(-rng.uniform(0, 2, (3, 8)))
    sensors = np.abs(rng.normal(size=(2, 8, 3)))
    illuminants = rng.uniform(0.2, 1, (count, 8))
    responses = np.einsum("sl,nl,clr->cnsr", family, illuminants, sensors)
    responses *= 0.9 / responses.sum(axis=2).max()
    surfaces = rng.uniform(0, 1, (count, 26, 40, 3)) ** 2
    patches = rng.uniform(0, 1, (24, 3))
    images = np.einsum("nhws,cnsr->cnhwr", surfaces, responses)
    charts = np.einsum("ps,cnsr->cnpr", patches, responses)
    return responses, images, charts, np.einsum("nl,clr->cnr", illuminants, sensors)


def write_camera(folder, camera, images, charts, illuminants):
    """Write linear values; where the chart lies is a colour that no surface has."""
    raw = np.round(images * (WHITE - BLACK) + BLACK).astype(np.uint16)
    raw[:, 7:15, 10:22] = 2000, 12000, 3000
    colors = np.minimum(charts * (WHITE - BLACK) + BLACK, WHITE)
    places = np.array([[8, 15, 11, 22]] * len(raw))
    write_raw_camera(folder, camera, raw, colors, illuminants, CC_coords=places)


def write_raw_camera(folder, camera, images, charts, illuminants, **variables):
    """Write raw values as the release's files; None leaves a variable of the .mat file out."""
    names = [f"{camera}_{index + 1:04}" for index in range(len(images))]
    for part in ("PNG", "CHECKER"):
        (folder / camera / part).mkdir(parents=True, exist_ok=True)
    for name, image, chart in zip(names, images, charts, strict=True):
        (folder / camera / "PNG" / f"{name}.PNG").write_bytes(imagecodecs.png_encode(image))
        np.savetxt(folder / camera / "CHECKER" / f"{name}_color.txt", chart, "%.9g", ",")
    cells = np.empty((len(names), 1), dtype=object)
    cells[:, 0] = names
    variables = {
        "all_image_names": cells,
        "groundtruth_illuminants": illuminants,
        "darkness_level": np.uint16(BLACK),
        "saturation_level": np.uint16(WHITE),
    } | variables
    stored = {name: value for name, value in variables.items() if value is not None}
    scipy.io.savemat(folder / camera / f"{camera}_gt.mat", stored)
