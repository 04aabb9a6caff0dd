"""Expert Gate (Aljundi et al. 2017, CVPR): a network and an autoencoder for every task.

The autoencoder has one undercomplete hidden layer and sees s = σ(features):

    ŝ = σ(W₂ relu(W₁ s + b₁) + b₂),   loss = mean over features of the cross-entropy of s and ŝ

For every sample the gate takes the expert whose autoencoder has the least loss. When task k begins,
its autoencoder is trained first. Er_a is the mean squared error of task a's autoencoder on samples
of task k. The relatedness of an earlier task a (section 3.3) is

    Rel(k, a) = 1 − (Er_a − Er_k) / Er_k.

The new expert starts from the most related one.
The paper keeps the outputs of that expert's task by learning without forgetting (LwF) where Rel is
above 0.85, and fine-tunes it otherwise.

Equal to the official code (rahafaljundi/Expert-Gate) at the autoencoder's layers, at the names of
its losses, whose functions are not in the repository, and at the relatedness, in the official code
in percent; differs in:

- The gate compares the cross-entropy, the loss that the autoencoder is trained with; the code
  compares what it names a Euclidean loss.
- The autoencoder is trained with Adam for `epochs` epochs in batches of 32, starting from
  LeCun-normal weights; the code trains 100 epochs with AdaGrad and weight decay in batches of 12,
  from 15 non-zero weights per unit, and has 500 hidden units.
- Er is taken over validation samples, or training samples where a task has none; the code takes
  all samples outside the training set.
- One expert predicts, as in the code; the paper may also load several.
- The repository stops at the relatedness. LwF is that of `lwf`, over the related task's classes.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import Between, NonNegativeInt, NotEmpty, PositiveFloat, PositiveInt, checked
from everlight.conditional import cond_under_vmap
from everlight.continual.engine.epochs import shuffle, take_batch
from everlight.continual.engine.evaluation import map_samples, update_rows, zero_rows
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.gate_features import flattened
from everlight.continual.strategies.parts.memory import carried_classes, merge_buffer
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.continual.strategies.parts.teacher import Teacher
from everlight.errors import Argument, ArgumentError

BATCH = 32
"""Batch size of an autoencoder's training."""
CHOSEN = 32
"""Batch size of a forward pass over samples for which the gate chose the same expert."""


class Autoencoder(NamedTuple):
    """Parameters of an autoencoder; several are stacked along a leading axis over experts."""

    encode: Float[Array, "*e f h"]
    encode_bias: Float[Array, "*e h"]
    decode: Float[Array, "*e h f"]
    decode_bias: Float[Array, "*e f"]


ErrorFunction = Callable[[Autoencoder, Float[Array, "b f"]], Float[Array, "b"]]


class Experts(NamedTuple):
    """Memory of Expert Gate; all fields but `gated` have a leading axis over tasks."""

    params: PyTree
    batch_stats: PyTree
    autoencoders: Autoencoder
    trained: Bool[Array, "t"]
    """True if the task's expert is trained."""
    relatedness: Float[Array, "t t"]
    """Rel(k, a) of a new task k and an earlier task a; 0 for all other pairs."""
    classes: Bool[Array, "t c"]
    """Labels that occur in each task's training samples."""
    gated: Bool[Array, ""]
    """True if the gate chooses the network that predicts, as it does between tasks."""


@checked
def expert_gate(
    setup: Setup,
    tasks: PositiveInt,
    features: Callable[[Float[Array, "b *shape"]], Float[Array, "b f"]],
    hidden: PositiveInt = 100,
    epochs: NonNegativeInt = 10,
    autoencoder_learning_rate: PositiveFloat = 1e-2,
    relatedness_threshold: Annotated[float, Between()] | None = None,
    regularization: Coefficient = 1.0,
    temperature: PositiveFloat = 2.0,
    class_group: Annotated[Int[Array, "c"], Between(0), NotEmpty] | None = None,
    groups: PositiveInt = 1,
) -> Strategy:
    """Return Expert Gate, whose memory is `Experts`; it holds one network per task.

    During a task, validation scores its expert; afterwards the gate chooses. Given the task,
    `predict_task` takes that task's expert, or the newest one if that is not trained yet.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: the number of tasks in the sequence.
      features: function from inputs in evaluation mode to features `[b, f]`, the same for all tasks
        (a pretrained network). They should have mean 0 and standard deviation 1, since σ is flat
        elsewhere.
      hidden: number of hidden units of an autoencoder, less than the features; 100 in the paper.
      epochs: number of epochs of an autoencoder's training.
      autoencoder_learning_rate: learning rate of the autoencoders' optimizer, Adam.
      relatedness_threshold: relatedness above which a new expert is trained with LwF; 0.85 in the
        paper. None always fine-tunes and skips the teacher's pass.
      regularization: coefficient λ of LwF; this and the following are used with a threshold only.
      temperature: temperature T of LwF.
      class_group: head of each class, if tasks have separate heads.
      groups: largest number of heads; heads of `class_group` alone have a part in the loss.

    Raises:
      ValueError: a head is not below `groups`; or, at `init`, `hidden` is not below the features.
    """
    plain = naive(setup)
    distilled = lwf(setup, regularization, temperature, class_group, groups)

    def compute_errors(
        error: ErrorFunction, memory: Experts, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b t"]:
        return jax.vmap(error, (0, None), 1)(memory.autoencoders, features(inputs))

    def init(key: PRNGKeyArray, learner: Learner) -> Experts:
        width = jax.eval_shape(features, setup.input_shape).shape[-1]
        if hidden >= width:
            raise ArgumentError(
                Argument("hidden", hidden),
                f" of {width} features",
                remedy=("an autoencoder needs fewer",),
            )
        one = _new_autoencoder(width, hidden, key)
        stacked = jax.tree.map(
            lambda leaf: jnp.zeros((tasks, *leaf.shape), leaf.dtype),
            (learner.params, learner.batch_stats, one),
        )
        return Experts(
            *stacked,
            trained=jnp.zeros(tasks, bool),
            relatedness=jnp.zeros((tasks, tasks), jnp.float32),
            classes=jnp.zeros((tasks, *learner.seen.shape), bool),
            gated=jnp.array(False),
        )

    def begin_task(
        memory: Experts, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Experts, Learner]:
        width = memory.autoencoders.encode.shape[1]
        new = _train(
            setup,
            features,
            task,
            key,
            width=width,
            hidden=hidden,
            epochs=epochs,
            learning_rate=autoencoder_learning_rate,
        )
        autoencoders = jax.tree.map(
            lambda stacked, leaf: stacked.at[task.id].set(leaf), memory.autoencoders, new
        )
        memory = memory._replace(autoencoders=autoencoders, gated=jnp.array(False))
        mean = mean_errors(setup, partial(compute_errors, squared_error, memory), task)
        row = jnp.where(memory.trained, relatedness(mean, mean[task.id]), 0).astype(jnp.float32)
        classes = carried_classes(task.train, learner.seen.shape[0])
        memory = memory._replace(
            relatedness=memory.relatedness.at[task.id].set(row),
            classes=memory.classes.at[task.id].set(classes),
        )
        related, _ = most_related(memory, task.id)
        return memory, choose_expert(jnp.any(memory.trained), memory, related, learner)

    def grads(
        memory: Experts, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        related, degree = most_related(memory, task.id)
        params, batch_stats, classes = jax.tree.map(
            lambda stacked: stacked[related], (memory.params, memory.batch_stats, memory.classes)
        )
        # LwF without a known class is fine-tuning.
        teacher = Teacher(params, batch_stats, classes & (degree > relatedness_threshold))
        return distilled.grads(teacher, learner, batch, task, key)

    def predict(
        memory: Experts, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        def gated_scores() -> Float[Array, "b c"]:
            errors = compute_errors(reconstruction_error, memory, inputs)
            expert = jnp.argmin(jnp.where(memory.trained, errors, jnp.inf), axis=1)
            return scores_by_experts(setup, memory, expert, inputs)

        return cond_under_vmap(
            memory.gated, gated_scores, lambda: plain.predict((), learner, inputs)
        )

    def predict_task(
        memory: Experts, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        return plain.predict((), choose_expert(memory.trained[task], memory, task, learner), inputs)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        grads=plain.grads if relatedness_threshold is None else grads,
        end_task=store_expert,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
        parameter_copies=tasks,
    )


def choose_expert(
    condition: Bool[Array, ""], memory: Experts, number: Int[Array, ""], learner: Learner
) -> Learner:
    """Return the learner with the network of an expert if a condition holds."""
    params, batch_stats = jax.tree.map(
        lambda stacked, leaf: jnp.where(condition, stacked[number], leaf),
        (memory.params, memory.batch_stats),
        (learner.params, learner.batch_stats),
    )
    return learner._replace(params=params, batch_stats=batch_stats)


def store_expert(
    memory: Experts, learner: Learner, task: Task, key: PRNGKeyArray
) -> tuple[Experts, Learner]:
    """Return the memory with the network of a task that ends, after which the gate chooses."""
    params, batch_stats = jax.tree.map(
        lambda stacked, new: stacked.at[task.id].set(new),
        (memory.params, memory.batch_stats),
        (learner.params, learner.batch_stats),
    )
    trained = memory.trained.at[task.id].set(True)
    memory = memory._replace(params=params, batch_stats=batch_stats, trained=trained)
    return memory._replace(gated=jnp.array(True)), learner


def mean_errors(
    setup: Setup, errors: Callable[[Float[Array, "b *shape"]], Float[Array, "b t"]], task: Task
) -> Float[Array, "t"]:
    """Return mean errors on a task's validation samples, or on its training samples without any."""
    samples = _validation_samples(task)
    total = jnp.sum(map_samples(setup, errors, samples, 256), 0, where=samples.mask[:, None])
    return total / jnp.maximum(jnp.sum(samples.mask), 1)


def scores_by_experts(
    setup: Setup, memory: Experts, expert: Int[Array, "b"], inputs: Float[Array, "b *shape"]
) -> Float[Array, "b c"]:
    """Return the scores of inputs by the network of the expert that is chosen for each.

    An expert passes the inputs that chose it alone, in blocks.
    """

    def scores(params: PyTree, batch_stats: PyTree, slots: Int[Array, "s"]) -> Float[Array, "s c"]:
        outputs, _ = setup.apply(params, batch_stats, inputs[slots], False, None)
        return setup.objective.scores(outputs)

    def expert_network(number: Int[Array, ""] | int) -> Callable:
        stacked = memory.params, memory.batch_stats
        return partial(scores, *jax.tree.map(lambda leaf: leaf[number], stacked))

    def update_expert_rows(
        number: Int[Array, ""], rows: Float[Array, "b c"]
    ) -> Float[Array, "b c"]:
        return update_rows(expert_network(number), expert == number, CHOSEN, rows)

    nothing = zero_rows(expert_network(0), jnp.ones(inputs.shape[0], bool))
    return jax.lax.fori_loop(0, memory.trained.shape[0], update_expert_rows, nothing)


def relatedness(
    earlier: Float[Array, "*t"], newest: Float[Array, ""] | float
) -> Float[Array, "*t"]:
    """Return 1 − (Er_a − Er_k) / Er_k for the errors of earlier autoencoders and the new one."""
    return 1 - (earlier - newest) / jnp.maximum(newest, jnp.finfo(jnp.float32).tiny)


def most_related(memory: Experts, task: Int[Array, ""]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the most related earlier task and its relatedness, −∞ where there is none."""
    row = jnp.where(memory.trained, memory.relatedness[task], -jnp.inf)
    return jnp.argmax(row), jnp.max(row)


def reconstruction_error(
    autoencoder: Autoencoder, features: Float[Array, "b f"]
) -> Float[Array, "b"]:
    """Return each sample's cross-entropy of s and ŝ, averaged over features."""
    squashed = jax.nn.sigmoid(features)
    logits = _reconstruction(autoencoder, squashed)
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, squashed), axis=-1)


def squared_error(autoencoder: Autoencoder, features: Float[Array, "b f"]) -> Float[Array, "b"]:
    """Return each sample's squared error of ŝ, averaged over features.

    Its least value is 0. The least cross-entropy is the entropy of s, which dominates the
    differences between autoencoders, so no threshold on their ratio could separate them.
    """
    squashed = jax.nn.sigmoid(features)
    again = jax.nn.sigmoid(_reconstruction(autoencoder, squashed))
    return jnp.mean(jnp.square(again - squashed), axis=-1)


def _reconstruction(autoencoder: Autoencoder, squashed: Float[Array, "b f"]) -> Float[Array, "b f"]:
    code = jax.nn.relu(squashed @ autoencoder.encode + autoencoder.encode_bias)
    return code @ autoencoder.decode + autoencoder.decode_bias


def _validation_samples(task: Task) -> Samples:
    """Return the task's samples, in which the validation samples count if there are any."""
    validated = jnp.any(task.valid.mask)
    train = task.train._replace(mask=task.train.mask & ~validated)
    return merge_buffer(train, task.valid).samples


def _train(
    setup: Setup,
    features: Callable[[Float[Array, "b *shape"]], Float[Array, "b f"]],
    task: Task,
    key: PRNGKeyArray,
    *,
    width: int,
    hidden: int,
    epochs: int,
    learning_rate: float,
) -> Autoencoder:
    """Return an autoencoder trained on a task; `width` is the number of features."""
    key_start, key_epochs = jax.random.split(key)
    optimizer = optax.adam(learning_rate)
    data = naive(setup).epoch_data((), task)

    def loss(params: Autoencoder, batch: Batch) -> Float[Array, ""]:
        inputs = setup.gather(batch.index, None)
        return weighted_mean(reconstruction_error(params, features(inputs)), batch.weight)

    def one_epoch(number: Int[Array, ""], carry: tuple) -> tuple:
        epoch = shuffle(data, jax.random.fold_in(key_epochs, number))

        def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
            params, state = carry
            gradient = jax.grad(loss)(params, take_batch(epoch, step, BATCH))
            update, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, update), state

        return jax.lax.fori_loop(0, -(-epoch.count // BATCH), one_step, carry)

    start = _new_autoencoder(width, hidden, key_start)
    return jax.lax.fori_loop(0, epochs, one_epoch, (start, optimizer.init(start)))[0]


def _new_autoencoder(width: int, hidden: int, key: PRNGKeyArray) -> Autoencoder:
    encode, decode = jax.random.split(key)
    draw = jax.nn.initializers.lecun_normal()
    return Autoencoder(
        draw(encode, (width, hidden)),
        jnp.zeros(hidden),
        draw(decode, (hidden, width)),
        jnp.zeros(width),
    )


_GATE = {"features": flattened, "hidden": 16}
"""Gate of the rows; a benchmark may set another one."""
_PAPER = Publication("Aljundi et al.", 2017, "CVPR", ("old net",))
METHODS = (
    Method(
        "ExpertGate",
        expert_gate,
        _PAPER,
        "expert gate: one network per task, chosen by autoencoders",
        fixed={**_GATE, "class_group": None, "groups": 1},
        requirements=("last weights",),
        authors={"hidden": 500, "epochs": 100},
        planned_total="tasks",
    ),
    # This row has the paper's relatedness threshold.
    Method(
        "ExpertGate-LwF",
        expert_gate,
        _PAPER,
        "ExpertGate; networks of related tasks are trained with LwF",
        fixed={**_GATE, "relatedness_threshold": 0.85},
        requirements=OTHER_WEIGHTS,
        authors={"hidden": 500, "epochs": 100, "relatedness_threshold": 0.85},
        planned_total="tasks",
    ),
)
