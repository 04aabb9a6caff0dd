"""Readers of files, renderers of images, and the storage of runs.

Every file from outside is read here; the experiments write reports and tables by `writing`. Readers
return arrays that models take, so the package also computes: it develops raw photographs, finds and
measures charts, aligns pairs of views, crops images at random, and passes them through frozen
networks.

- `color`: photographs with measured illuminants, raw files, charts, rendered scenes, camera pairs.
- `facts`: facts with their images and word vectors, split into tasks.
- `formats`: file formats, read without running what they hold.
- `iirc`: the benchmarks of incremental learning with implicitly refined classes.
- `images`: labelled images, a file for each data set, and the user's folders.
- `pretrained`: weights of pretrained networks, and the features that they compute.
- `procedural`: labelled images that are rendered from a seed, without files.
- `runs`: configurations, checkpoints, events and results of runs.
- `sets`: the types that readers return, and preparation of data sets.
- `user_code`: Python files of users, with their checksums.

`registry` collects the rows of data sets, `image_requests` loads images by name or path, and
`tfds_builders` registers sets with TensorFlow Datasets. `locations` finds EVERLIGHT_DATA, `writing`
writes whole files, and `locks` keeps processes apart. `errors`, `names`, `texts` and `progress`
serve messages, `optional_packages` imports the packages of extras, and `padded_blocks` divides rows
into blocks of one size.
"""
