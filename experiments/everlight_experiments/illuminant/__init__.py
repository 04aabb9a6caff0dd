"""Illuminant estimation from one image, and from the two cameras of a phone.

- `photographs`: single-image methods on photographs with known illuminants. `dataset` compares
  them, `train` fits one for use, `thumbnails` makes the images of a user's own set.
- `phone`: `calibrate` measures a phone's pairs of raw files with a colour chart, and `selection`
  selects the estimator that is kept.
- `pairs`: one camera against two, on pairs with known illuminants and no chart.
- `estimate`: the illuminants of new photos or pairs by a kept model.
- `export`: illuminants and colour matrices for a tuning file of libcamera.
- `two_camera`: the paper's tables, on rendered scenes, NUS photographs and S20 transforms.
- `core`: what all of them share.

The steps of `everlight illuminant dataset`:

1. `cli.command` finds the command, and `photographs.dataset.run_dataset` opens the run folder.
2. `photographs.source.load_cameras` reads the images, and `everlight_data` divides them into folds.
3. `core.image_methods.cross_validate_methods` fits every method of
   `everlight.color.illuminant_registry` on the training images and estimates the tested ones.
4. `core.cross_validation.cross_validate` does so with regressions and networks on colour moments;
   each fold's validation images select step and augmentation. `core.networks` trains all networks
   of a table in one program.
5. The estimates are a `core.experiment.Comparison`, whose errors `record_errors` logs;
   `estimate_arrays` names them in `results.npz`. All of a command's comparisons, with data and
   protocol, are an `IlluminantExperiment`.
6. `core.report.publish` makes summary, tables and figures of it, and
   `everlight_experiments.report.writer` the page.
"""

CITATION = (
    'Abdelhamed et al. 2021, "Leveraging the Availability of Two Cameras for Illuminant Estimation"'
)
