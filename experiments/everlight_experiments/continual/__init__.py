"""Benchmarks of continual learning, and the steps in which all methods are trained on them.

The steps of `everlight run digits --methods EWC`:

1. `cli.command` finds the command; `commands.option_defaults` makes its options from the
   benchmark's configuration, and tyro reads them.
2. `commands.run.run_benchmark` has `commands.load_and_train` load the benchmark:
   `commands.benchmark_registry.load_benchmarks` finds the row of digits, and `images.benchmark`
   composes it. `images.data` reads the images and has `everlight.scenarios` divide the classes,
   `benchmarks.parts` makes network and optimizer. The result is a `benchmarks.benchmark.Benchmark`
   per setting, with the parts `Data`, `Setting`, `Training` and `Selection`.
3. Where all of it can be used, `run_benchmark` opens the run folder (`run_folder.folder`) and calls
   `load_and_train.train_suites`. `training.queue.runners_of` makes there what a benchmark prepares,
   such as CORe50's pretrained weights.
4. `training.queue.train_jobs` goes through methods and settings; `training.runner.Runner` selects a
   method's hyper-parameter on validation seeds and trains the evaluation seeds. Its
   `training.programs.MethodPrograms` build the strategy by the method's row in
   `everlight.continual.methods.registry`.
5. `training.runs.train_runs` takes runs that no other process trains, as many at once as there are
   devices, and keeps checkpoints. `everlight.continual.engine.driver.drive_runs` compiles and
   calls the program: `engine.tasks` a task, `engine.epochs` an epoch, `engine.updates` a step,
   which calls the strategy's `draw`, `grads` and `after_step`; `engine.evaluation` scores all
   test sets.
6. `training.outcome.compute_metrics` computes the benchmark's named metrics from the arrays that
   the runs return, and `training.queue.save_outcomes` writes them to results.npz.
7. `report.sections.report_sections` makes tables and figures, and
   `everlight_experiments.report.writer` the page.
"""
