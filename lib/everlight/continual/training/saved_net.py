"""A trained network with its memory and normalization, which predicts new images."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from everlight.base import Learner, Memory, Samples, TaskSequence
from everlight.continual.engine.evaluation import map_samples
from everlight.continual.engine.run import Build
from everlight.continual.engine.sources import are_images, less_offset, stored_images
from everlight.continual.training.labelled_images import refuse_unstorable
from everlight.errors import ArgumentError


@dataclass(frozen=True)
class SavedNet:
    """A network at the end of a task."""

    class_names: tuple[str, ...]
    """Names of the classes; empty where the benchmark has none."""
    task_classes: Bool[np.ndarray, "t c"]
    """The classes of each task."""
    learner: Learner
    """Parameters, batch statistics and the classes seen; without the optimizer's state."""
    memory: Memory
    """The strategy's memory, from which some predict."""
    build: Build
    """Function from the data to the setup and the strategy."""
    data: PyTree
    """Data of the run, among them `StoredImages`, which give shape and normalization."""
    size: int
    """Samples per forward pass."""
    masked: bool = True
    """True if outputs are scores of classes, of which those not seen yet are left out."""

    def predict(
        self, images: Shaped[np.ndarray, "n *shape"], task: int | None = None
    ) -> Float[np.ndarray, "n c"]:
        """Return the scores of the classes; the class with the highest score is predicted.

        Where samples have several labels, those with scores above 0 are predicted. Where outputs
        are embeddings of facts, the result is the embeddings.

        Args:
          images: as the benchmark has them, uint8 `[n, h, w, c]`, or the features learned from.
          task: task identity that is given at test, from 0; None gives none.

        Returns:
          `[n, c]`; minus infinity for classes not seen yet, or not of the given task.

        Raises:
          ValueError: images of another shape or type, numbers that are not finite or too large, or
            a task that does not exist.
        """
        images, stored = np.asarray(images), next(stored_images(self.data))
        dtype = stored.pieces.dtype
        wrong = images.shape[1:] != stored.shape or not len(images)
        # Integers of another width would be wrapped into the stored ones.
        is_other = dtype.kind in "ui" and images.dtype != dtype
        if wrong or is_other or images.dtype.kind != dtype.kind:
            taken = ", ".join(map(str, stored.shape))
            raise ArgumentError(
                f"images have dtype {images.dtype} and shape {images.shape}; this network takes "
                f"{dtype} and (n, {taken})"
            )
        refuse_unstorable("images", images)
        tasks = len(self.task_classes)
        if task is not None and not 0 <= task < tasks:
            raise ArgumentError(f"task {task}; give 0 to {tasks - 1}")
        inputs = jnp.asarray(less_offset(images, stored.offset, dtype))
        identity = None if task is None else jnp.int32(task)
        forward = partial(_predict_images, self.build, self.size, self.data, inputs)
        scores = np.array(forward(self.learner, self.memory, identity))
        if self.masked:
            possible = np.array(self.learner.seen)
            if task is not None:
                possible &= self.task_classes[task]
            scores[:, ~possible] = -np.inf
        return scores


def classes_of_tasks(sequence: TaskSequence) -> Bool[np.ndarray, "t c"]:
    """Return the classes among which each task's samples are scored, or those it introduces."""
    if sequence.test_classes is not None:
        return np.asarray(sequence.test_classes)
    class_task = np.asarray(sequence.class_task)
    return class_task == np.arange(class_task.max() + 1)[:, None]


def predict_images(
    build: Build,
    size: int,
    data: PyTree,
    images: Shaped[Array, "n *shape"],
    learner: Learner,
    memory: Memory,
    task: Int[Array, ""] | None = None,
) -> Float[Array, "n c"]:
    """Return the scores of images, which are normalized as the training images were.

    Args:
      build: function from the data to the setup and the strategy.
      size: images per forward pass.
      data: data of the run, whose `StoredImages` these images replace.
      images: images as they are stored, less the offset (`less_offset`), `[n, *shape]`.
      learner: trained network.
      memory: the strategy's memory.
      task: task identity for a strategy with `predict_task`; None gives none.
    """
    _, strategy = build(data)
    others = jax.tree.map(
        lambda part: part.with_images(images) if are_images(part) else part,
        data,
        is_leaf=are_images,
    )
    setup, _ = build(others)

    def forward(inputs: Float[Array, "s *shape"]) -> Float[Array, "s c"]:
        if task is not None and strategy.predict_task is not None:
            return strategy.predict_task(memory, learner, inputs, task)
        return strategy.predict(memory, learner, inputs)

    count = images.shape[0]
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))
    return map_samples(setup, forward, samples, size)


_predict_images = jax.jit(predict_images, static_argnums=(0, 1))
