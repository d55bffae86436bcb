"""Runs `gputop estimate`: calls a function of the user that returns a model and inputs, and
estimates a training step.

    python estimate_command.py '{"file": FILE, "function": NAME or null, "measure": false,
                                 "gpus": [BYTES, …], "runs": [RUN, …]}'

A run is {"parameters": {NAME: NUMBER, …}, "optimizer": NAME or null, "precision": NAME or null,
"checkpoint": false, "lora": RANK or null, "sharding": null or [KIND, GPUS, STAGE], "is_brief":
false}. Without a function, the file is a configuration of Hugging Face.

Prints one line of JSON for each run: the result, or {"error": SENTENCE}. All that the user's code
prints goes to the standard error.
"""

import contextlib
import gc
import inspect
import json
import linecache
import os
import sys
import traceback

KEYS = ("model", "inputs", "optimizer", "loss", "targets", "batch")
RETURNS = "(model, inputs), (model, inputs, optimizer), or a dict with %s" % ", ".join(KEYS)


class Failure(Exception):
    """The sentence for the user."""


def main(options, tell):
    if sys.version_info < (3, 8):
        raise Failure(
            "%s is Python %d.%d: name one of 3.8 or later with --python"
            % (sys.executable, sys.version_info[0], sys.version_info[1])
        )
    estimates = import_estimates()
    check_torch()
    device = None if options["measure"] else estimates.cuda_without_memory(is_alone=True)
    with device.installed() if device else contextlib.nullcontext():
        make = maker(options["file"], options["function"])
        for run in options["runs"]:
            if device:
                device.forget()
            try:
                tell(result_of(estimates, device, make(run["parameters"]), options, run))
            except Failure as failure:
                tell({"error": str(failure)})
            # Its parameters are gone before the next model is made.
            gc.collect()


def result_of(estimates, device, arguments, options, run):
    """The result of a run, for JSON. `device` is the CUDA device without memory, if any."""
    model, doing = arguments["model"], "measuring" if options["measure"] else "estimating"
    try:
        notes = arguments.pop("notes") + change(arguments, run)
        if options["measure"]:
            found = measured(arguments)
        else:
            found = estimated(estimates, device or estimates.meta_device(), arguments, run)
        result = found.dictionary()
        result["assumptions"] = notes + result["assumptions"]
        result["fits"] = [found.peak <= estimates.room_of(memory) for memory in options["gpus"]]
        if not run["is_brief"]:
            result["largest_batches"] = [found.largest(memory) for memory in options["gpus"]]
    except Exception as error:
        raise Failure("%s a step of %s failed: %s" % (doing, type(model).__name__, reason(error)))
    import torch

    result["optimizer"] = name_of(arguments["optimizer"])
    result["torch"] = str(torch.__version__)
    return result


def change(arguments, run):
    """Changes the model and the optimizer as the run says. Returns assumptions, as sentences."""
    from gputop_probe import variants

    notes = []
    if run["precision"] is not None:
        arguments["precision"] = run["precision"]
    if run["lora"] is not None:
        notes.append(variants.add_adapters(arguments["model"], run["lora"]))
    if run["optimizer"] is not None:
        arguments["optimizer"] = None if run["optimizer"] == "none" else run["optimizer"]
    elif run["lora"] is not None:
        arguments["optimizer"] = variants.optimizer_of_adapters(
            arguments["optimizer"], arguments["model"]
        )
    if run["checkpoint"]:
        variants.checkpoint_blocks(arguments["model"])
    return notes


def estimated(estimates, device, arguments, run):
    from gputop_probe.sharding import Sharding
    from gputop_probe.simulation import Subject
    from gputop_probe.variants import Refusal

    count = arguments.pop("count")
    subject = Subject(**arguments, sharding=Sharding(*(run["sharding"] or ())))
    if not run["is_brief"]:
        return estimates.estimate_of(device, subject)
    if count and not subject.batch:
        raise Refusal("its inputs have no batch: give the function a parameter batch")
    return estimates.brief_estimate(device, subject, count or subject.batch)


def measured(arguments):
    from gputop_probe.measurement import measure_training

    given = dict(arguments, **arguments["keywords"])
    model, inputs = given.pop("model"), given.pop("inputs")
    del given["keywords"], given["count"]
    return measure_training(model, *inputs, **given)


# Errors of PyTorch about tensors without data, by the name of their class.
WITHOUT_DATA = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "GuardOnDataDependentSymNode",
    "UnsupportedOperatorException",
    "UnsupportedFakeTensorException",
)


def reason(error):
    """Why a step failed, and what to do."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    if any(name in WITHOUT_DATA for name in kinds) or "fake tensor" in str(error).lower():
        return (
            "it looks at values that tensors without data do not have, in %s%s: "
            "--measure runs it on a GPU instead" % (first_word(error), place(error))
        )
    import torch
    from gputop_probe.estimates import can_follow_cuda

    if not can_follow_cuda(torch):
        return (
            "%s; PyTorch 2.6 or later can estimate more models, and --measure runs them on a GPU"
            % describe(error)
        )
    return describe(error)


def first_word(error):
    return str(error).split()[0].rstrip(",") if str(error).split() else type(error).__name__


def import_estimates():
    """Imports the module from this file's folder, which must not stay in sys.path: its files
    have common names.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder] + [entry for entry in sys.path if os.path.abspath(entry) != folder]
    from gputop_probe import estimates

    del sys.path[0]
    return estimates


def check_torch():
    way_out = "name the Python of your environment with --python, or activate it"
    try:
        import torch
    except Exception as error:
        raise Failure(
            "%s cannot import torch: %s: %s" % (sys.executable, first_line(error), way_out)
        )
    try:
        version = tuple(int(number) for number in str(torch.__version__).split(".")[:2])
    except (AttributeError, ValueError):
        raise Failure("%s is not PyTorch: %s" % (getattr(torch, "__file__", "torch"), way_out))
    if version < (2, 0):
        raise Failure(
            "%s has PyTorch %s, and an estimate needs 2.0 or later: %s"
            % (sys.executable, torch.__version__, way_out)
        )


def maker(path, name):
    """A function of parameters that returns the arguments of an estimate."""
    if name is None:
        from gputop_probe import hugging_face

        return hugging_face.maker(path, Failure)
    function = imported(path, name)
    file = os.path.basename(path)

    def make(parameters):
        given, count = accepted(function, name, parameters)
        returned = run("%s() in %s" % (name, file), function, **given)
        notes = []
        if count:
            notes.append("%s() has no parameter batch: its inputs are scaled" % name)
        return dict(understand(returned, name), count=count, notes=notes)

    return make


def accepted(function, name, parameters):
    """The parameters that a function has, and the batch that it does not have."""
    known = inspect.signature(function).parameters.values() if parameters else ()
    names = [one.name for one in known if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if any(one.kind == one.VAR_KEYWORD for one in known):
        return parameters, None
    given = {key: value for key, value in parameters.items() if key in names}
    for key in parameters:
        if key not in names and key != "batch":
            raise Failure(
                "%s() has no parameter %s to sweep; its parameters: %s"
                % (name, key, ", ".join(names) or "none")
            )
    return given, parameters.get("batch") if "batch" not in given else None


def imported(path, name):
    """Imports the file, and returns its function."""
    from importlib.machinery import SourceFileLoader
    from importlib.util import module_from_spec, spec_from_loader

    path = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(path))[0]
    # A module of that name may be in use, such as that of `json.py`.
    module_name = stem if stem not in sys.modules else "estimated_" + stem
    sys.path.insert(0, os.path.dirname(path))
    sys.argv[:] = [path]
    module = module_from_spec(spec_from_loader(module_name, SourceFileLoader(module_name, path)))
    sys.modules[module_name] = module
    file = os.path.basename(path)
    run("importing %s" % file, module.__spec__.loader.exec_module, module)
    function = getattr(module, name, None)
    if not callable(function):
        own = [
            key
            for key, value in vars(module).items()
            if hasattr(value, "__code__") and value.__module__ == module_name
        ]
        there = ", ".join(own[:8]) if own else "none"
        raise Failure("%s has no function %s; its functions: %s" % (file, name, there))
    return function


def run(doing, function, *arguments, **keywords):
    try:
        return function(*arguments, **keywords)
    except SystemExit as error:
        code = "" if error.code is None else error.code
        raise Failure("%s ended the program with sys.exit(%s)%s" % (doing, code, place(error)))
    except Exception as error:
        raise Failure("%s failed: %s" % (doing, describe(error)))


def understand(returned, name):
    """The values that the function returned, as arguments of `estimate`."""
    import torch

    if isinstance(returned, dict):
        unknown = [str(key) for key in returned if key not in KEYS]
        if unknown:
            raise Failure(
                "%s() returned a dict with the key %s: it may have %s"
                % (name, unknown[0], ", ".join(KEYS))
            )
        found = returned
    elif isinstance(returned, (tuple, list)) and 2 <= len(returned) <= 3:
        found = dict(zip(KEYS, returned))
    else:
        raise Failure("%s() returned %s instead of %s" % (name, kind_of(returned), RETURNS))
    model, inputs = found.get("model"), found.get("inputs")
    if not isinstance(model, torch.nn.Module):
        raise Failure(
            "%s() returned %s as the model, which must be a torch.nn.Module: return %s"
            % (name, kind_of(model), RETURNS)
        )
    if isinstance(inputs, dict):
        inputs, keywords = (), inputs
    else:
        inputs, keywords = inputs if isinstance(inputs, (tuple, list)) else (inputs,), {}
    if not any(isinstance(value, torch.Tensor) for value in list(inputs) + list(keywords.values())):
        raise Failure(
            "%s() returned %s as the inputs, which must be a tensor, several, or a dict of them"
            % (name, kind_of(found.get("inputs")))
        )
    return {
        "model": model,
        "inputs": inputs,
        "keywords": keywords,
        "optimizer": found.get("optimizer", "adamw"),
        "loss": found.get("loss"),
        "targets": found.get("targets"),
        "batch": found.get("batch"),
    }


def kind_of(value):
    if isinstance(value, (tuple, list)):
        return "a %s of %d" % (type(value).__name__, len(value))
    return "None" if value is None else "a value of type %s" % type(value).__name__


def name_of(optimizer):
    """The name of an optimizer for people. None: there is none."""
    if optimizer is None or isinstance(optimizer, str):
        return optimizer
    return (
        type(optimizer).__name__
        if hasattr(optimizer, "param_groups")
        else getattr(optimizer, "__name__", "own")
    )


def first_line(error):
    lines = (
        str(error).strip().splitlines() if not isinstance(error, SyntaxError) else [str(error.msg)]
    )
    return (
        "%s: %s" % (type(error).__name__, lines[0].rstrip(".:")) if lines else type(error).__name__
    )


def describe(error):
    """The error, and the user's line that caused it."""
    if type(error).__name__ == "Refusal":
        return str(error)
    return first_line(error) + place(error)


def place(error):
    """` (train.py:12, in build: x = f())`: the innermost line that is not of an installed
    package, of Python, or of gputop.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return line(error.filename, error.lineno, None)
    frames = [
        (frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(error.__traceback__)
    ]
    own = os.path.dirname(os.path.abspath(__file__))
    library = os.path.dirname(os.__file__)
    foreign = tuple(
        folder + os.sep for folder in (own, library, os.path.dirname(sys.modules["torch"].__file__))
    )
    users = [
        frame
        for frame in frames
        if not frame[0].startswith(foreign + ("<",)) and "-packages" + os.sep not in frame[0]
    ]
    return line(*users[-1]) if users else ""


def line(file, number, function):
    text = linecache.getline(file, number or 0).strip()
    where = "%s:%s%s" % (
        os.path.relpath(file) if os.path.isabs(file) else file,
        number,
        ", in %s" % function if function else "",
    )
    return " (%s: %s)" % (where, text) if text else " (%s)" % where


if __name__ == "__main__":
    # Text of the user's code must not get between the JSON.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def tell(answer):
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

        try:
            main(json.loads(sys.argv[1]), tell)
        except Failure as failure:
            tell({"error": str(failure)})
