"""Makes a model of transformers from its configuration, without weights.

It uses no network, and runs no code that comes with a configuration: transformers has to know the
kind of model itself.
"""

import inspect
import json
import os

import torch

from .estimates import can_follow_cuda

# The inputs where the command names none. The length is at most that of the model.
BATCH, LENGTH = 1, 2048
# Classes of models by the end of their names, and the shape of their labels.
PER_INPUT = ("ForSequenceClassification", "ForImageClassification")
PER_TOKEN = (
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "ForTokenClassification",
)


def maker(path, failure):
    """Returns a function of parameters (`batch` and `length`) that returns the arguments of an
    estimate. Raises `failure` with a sentence.
    """
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    known = _read(path, failure)
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except Exception as error:
        raise failure(
            "hf: needs transformers, which cannot be imported (%s): "
            "install it in the environment of --python" % _one_line(error)
        ) from error
    file = os.path.basename(path)
    kind = str(known["model_type"])
    if kind not in CONFIG_MAPPING:
        own = (
            ", and gputop does not run the code that comes with it (auto_map)"
            if "auto_map" in known
            else ""
        )
        raise failure(
            "transformers %s knows no model of model_type %s%s: "
            "write a function that makes the model" % (transformers.__version__, kind, own)
        )
    try:
        config = CONFIG_MAPPING[kind].from_dict(known)
        config.use_cache = False
        model_class = _class_of(transformers, config, known)
    except Exception as error:
        raise failure(
            "%s is no configuration that transformers %s understands: %s"
            % (file, transformers.__version__, _one_line(error))
        ) from error

    def make(parameters):
        for name in parameters:
            if name not in ("batch", "length"):
                raise failure(
                    "a model of hf: has no parameter %s to sweep: batch and length" % name
                )
        try:
            model = _model(model_class, config)
        except Exception as error:
            raise failure(
                "transformers cannot make %s of %s: %s"
                % (model_class.__name__, file, _one_line(error))
            ) from error
        try:
            inputs = _inputs(model, config, parameters)
        except Exception as error:
            raise failure("%s of %s: %s" % (model_class.__name__, file, error)) from error
        notes = [
            "%s of transformers %s with weights in %s, and no cache of keys and values"
            % (model_class.__name__, transformers.__version__, str(_type_of(config)).split(".")[-1])
        ]
        if "quantization_config" in known:
            notes.append("the quantization of the configuration is not followed")
        return {
            "model": model,
            "inputs": (),
            "keywords": inputs,
            "optimizer": "adamw",
            "loss": None,
            "targets": None,
            "count": None,
            "notes": notes,
        }

    return make


def _one_line(error):
    return "%s: %s" % (type(error).__name__, " ".join(str(error).split()))


def _read(path, failure):
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError) as error:
        raise failure("%s cannot be read as JSON: %s" % (path, _one_line(error))) from error
    if not isinstance(known, dict) or "model_type" not in known:
        raise failure(
            "%s has no model_type: hf: needs the config.json of a model of transformers" % path
        )
    return known


def _class_of(transformers, config, known):
    """The class that the configuration names; else the one that predicts the next word, or the one
    without a head.
    """
    for name in known.get("architectures") or ():
        found = getattr(transformers, name, None)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return found
    from transformers.models.auto import modeling_auto

    for mapping in (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING, modeling_auto.MODEL_MAPPING):
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, (list, tuple)) else found
    raise ValueError("it names no class in architectures")


def _type_of(config):
    """The data type of the weights."""
    for name in ("dtype", "torch_dtype"):
        found = vars(config).get(name)
        found = getattr(torch, found, None) if isinstance(found, str) else found
        if isinstance(found, torch.dtype):
            return found
    return torch.float32


def _model(model_class, config):
    before = torch.get_default_dtype()
    torch.set_default_dtype(_type_of(config))
    try:
        # On this device, weights take no memory of the host.
        with torch.device("cuda" if can_follow_cuda(torch) else "meta"):
            return model_class(config).train()
    finally:
        torch.set_default_dtype(before)


def _inputs(model, config, parameters):
    """The keyword arguments of the model."""
    batch = parameters.get("batch", BATCH)
    name = type(model).__name__
    if model.main_input_name == "pixel_values":
        if "length" in parameters:
            raise ValueError("images have no length")
        size = config.image_size
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        pixels = torch.zeros(batch, config.num_channels, height, width, dtype=_type_of(config))
        labels = (batch,) if name.endswith(PER_INPUT) else None
        inputs = {"pixel_values": pixels}
    elif model.main_input_name == "input_ids":
        most = getattr(config.get_text_config(), "max_position_embeddings", None) or LENGTH
        length = parameters.get("length", min(LENGTH, most))
        if length > most:
            raise ValueError("the model has %d positions, and length is %d" % (most, length))
        inputs = {"input_ids": torch.zeros(batch, length, dtype=torch.long)}
        known = inspect.signature(model.forward).parameters
        if "attention_mask" in known and can_follow_cuda(torch):
            # As from a tokenizer. Models look at its values, which the meta device does not keep.
            inputs["attention_mask"] = torch.ones(batch, length, dtype=torch.long)
        labels = (batch, length) if name.endswith(PER_TOKEN) else None
        labels = (batch,) if name.endswith(PER_INPUT) else labels
    else:
        raise ValueError("hf: makes no inputs named %s: write a function" % model.main_input_name)
    if labels is not None:
        inputs["labels"] = torch.zeros(labels, dtype=torch.long)
    return inputs
