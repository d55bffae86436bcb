"""Models of transformers and peft for `estimate_check.py`: each function is a subject of `gputop
estimate`, with a batch of 4 and a length of 256, and each configuration one for `hf:`.
"""

CONFIGURATIONS = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": 6,
        "n_embd": 384,
        "n_head": 6,
        "vocab_size": 16000,
    },
    "bert": {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "d_model": 256,
        "d_ff": 512,
        "num_layers": 2,
        "num_heads": 4,
        "decoder_start_token_id": 0,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "vocab_size": 8000,
    },
}


def made(name):
    """A model of transformers, as a program makes it, and its inputs."""
    import torch
    import transformers

    known = dict(CONFIGURATIONS[name])
    model_class = getattr(transformers, known.pop("architectures")[0])
    config = model_class.config_class(**known, use_cache=False)
    model = model_class(config).to(getattr(torch, known.get("torch_dtype", "float32")))
    words = torch.zeros(4, 256, dtype=torch.long)
    is_classifier = model_class.__name__.endswith("Classification")
    return model, {"input_ids": words, "labels": words[:, 0].clone() if is_classifier else words}


def with_peft(name):
    """The same with the adapters of peft."""
    from peft import LoraConfig, get_peft_model

    model, inputs = made(name)
    return get_peft_model(model, LoraConfig(r=16, target_modules="all-linear")), inputs


def __getattr__(name):
    base = name.replace("without_cudnn_", "", 1)
    if base.removesuffix("_peft") not in CONFIGURATIONS:
        raise AttributeError(name)
    if base.endswith("_peft"):
        return lambda: with_peft(base.removesuffix("_peft"))
    return lambda: made(base)
