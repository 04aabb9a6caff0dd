"""Registry of methods: the rows that the modules of `strategies` declare as `METHODS`.

A new strategy is one file in that package. Benchmarks, help, documentation and contract tests read
the rows.
"""

from flax.core import FrozenDict

from everlight.continual import strategies
from everlight.continual.methods.method import Method
from everlight.declared_rows import declared_rows

ORDER = (
    *("naive", "cumulative", "ewc", "si", "rwalk", "mas", "lwf"),
    *("imm", "task_arithmetic", "ties", "cofima", "gpm", "trgp"),
    *("balanced_replay", "experience_replay", "unlimited_replay"),
    *("der", "der_plus_plus", "fdr", "fromp"),
    *("mir", "er_ace", "er_aml", "scr", "pcr", "ocm", "onpro", "er_tricks", "xder_rpc"),
    *("cls_er", "mkd", "gdumb"),
    *("agem", "gem", "hal", "icarl", "lucir", "podnet", "bic", "aper", "slca", "wa", "ss_il"),
    *("prototype_augmentation", "feature_translation", "drift_compensation"),
    *("expandable_representation", "memo"),
    *("generative_replay", "brain_inspired_replay"),
    *("separate_networks", "pnn", "expert_gate", "packnet", "hat", "xdg"),
    *("continual_backprop", "redo", "shrink_and_perturb", "l2_init"),
    *("ar1", "latent_replay"),
    *("cwr", "streaming_lda", "nearest_mean", "simple_cil", "fecam", "randumb", "ranpac"),
    *("acil", "ds_al", "generative_classifier", "l2p", "dual_prompt", "coda_prompt", "lora"),
    *("inflora", "ease"),
)
"""Files in the order of tables, by kind of method; others follow by name."""

# Rows are hashed as parts of keys.
METHODS: dict[str, Method] = {
    name: row._replace(fixed=FrozenDict(row.fixed), authors=FrozenDict(row.authors))
    for name, row in declared_rows((strategies,), "METHODS", ORDER).items()
}
"""All methods by name."""
