"""Models of many kinds for `estimate_check.py`: each function is a subject of `gputop estimate`."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50():
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(depth):
            layers.append(Bottleneck(inside, width, stride if number == 0 else 1))
            inside = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))
    return {
        "model": model,
        "inputs": torch.zeros(16, 3, 224, 224),
        "targets": torch.zeros(16, dtype=torch.long),
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
    }


class Attention(nn.Module):
    """Attention with as many key heads as are asked for; `bias` replaces the fused kernel."""

    def __init__(self, width, heads, key_heads=None, dropout=0.0):
        super().__init__()
        self.heads, self.key_heads, self.dropout = heads, key_heads or heads, dropout
        inner = width // heads * self.key_heads
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key, self.value = nn.Linear(width, inner), nn.Linear(width, inner)

    def forward(self, x, memory=None, mask=None, bias=None, rotate=None, is_causal=False):
        memory = x if memory is None else memory

        def split(y, heads):
            return y.view(y.shape[0], y.shape[1], heads, -1).transpose(1, 2)

        query = split(self.query(x), self.heads)
        key, value = (
            split(self.key(memory), self.key_heads),
            split(self.value(memory), self.key_heads),
        )
        if rotate is not None:
            query, key = rotate(query), rotate(key)
        if self.key_heads != self.heads:
            repeats = self.heads // self.key_heads
            key, value = (y.repeat_interleave(repeats, 1) for y in (key, value))
        dropout = self.dropout if self.training else 0.0
        if bias is None:
            y = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
            )
        else:
            scores = query @ key.transpose(-1, -2) + bias
            weights = F.softmax(scores.float(), dim=-1).type_as(scores)
            y = F.dropout(weights, self.dropout, self.training) @ value
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of GPT-2 or a vision transformer: normalization first."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, dropout=dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x, is_causal=True):
        x = x + self.attention(self.norms[0](x), is_causal=is_causal)
        return x + self.mlp(self.norms[1](x))


class Vit(nn.Module):
    def __init__(self, width=384, depth=12, heads=6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.zeros(1, 196, width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x, is_causal=False)
        return self.head(x.mean(1))


def vit_bf16():
    model = Vit().bfloat16()
    target = torch.zeros(64, dtype=torch.long)
    return {
        "model": model,
        "inputs": torch.zeros(64, 3, 224, 224, dtype=torch.bfloat16),
        # The targets are in no argument: the loss moves them.
        "loss": lambda output: F.cross_entropy(output, target),
    }


class Gpt(nn.Module):
    """`how` is None, "reentrant" or "other": the kind of checkpointing."""

    def __init__(self, words=16000, width=384, depth=6, heads=6, dropout=0.1, how=None):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.how = how

    def forward(self, input_ids, labels):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.drop(self.words(input_ids) + self.places(places))
        for layer in self.layers:
            if self.how is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.how == "reentrant")
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


class Autocast(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *arguments, **keywords):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return self.model(*arguments, **keywords)


def text(batch, length):
    words = torch.zeros(batch, length, dtype=torch.long)
    return {"input_ids": words, "labels": words}


def of_loss(output):
    return output["loss"]


def gpt2():
    return {"model": Gpt(), "inputs": text(8, 256), "loss": of_loss}


def sized(batch=1, length=1024):
    """The same with parameters, for `--sweep`."""
    return {"model": Gpt(), "inputs": text(batch, length), "loss": of_loss}


def gpt2_autocast():
    return {"model": Autocast(Gpt()), "inputs": text(8, 256), "loss": of_loss}


def checkpoint_reentrant():
    return {"model": Gpt(depth=12, how="reentrant"), "inputs": text(8, 512), "loss": of_loss}


def checkpoint_autocast():
    model = Autocast(Gpt(depth=12, how="other"))
    return {"model": model, "inputs": text(8, 512), "loss": of_loss}


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class LlamaLayer(nn.Module):
    def __init__(self, width, inner, heads, key_heads):
        super().__init__()
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2))
        self.attention = Attention(width, heads, key_heads)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, mask, rotate):
        x = x + self.attention(self.norms[0](x), mask=mask, rotate=rotate, is_causal=mask is None)
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words=32000, width=512, inner=1376, depth=6, heads=8, key_heads=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, inner, heads, key_heads) for _ in range(depth)
        )
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        half = width // heads // 2
        self.register_buffer("speeds", 10000.0 ** -(torch.arange(half) / half), persistent=False)

    def forward(self, input_ids, labels=None, attention_mask=None):
        mask = None
        # As in transformers: a mask of ones is dropped, which looks at its values.
        if attention_mask is not None and not attention_mask.all():
            mask = attention_mask[:, None, None, :].bool()
        x = self.words(input_ids)
        with torch.autocast(x.device.type, enabled=False):
            angles = torch.arange(x.shape[1], device=x.device)[:, None] * self.speeds.float()
            angles = torch.cat((angles, angles), -1)
            cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def rotate(y):
            first, second = y.chunk(2, -1)
            return y * cosine + torch.cat((-second, first), -1) * sine

        for layer in self.layers:
            x = layer(x, mask, rotate)
        logits = self.head(self.norm(x)).float()
        if labels is None:
            return logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def llama():
    words = text(4, 512)
    return Llama(), dict(words, attention_mask=torch.ones_like(words["input_ids"]))


def llama_bf16():
    words = text(4, 512)
    mask = torch.ones_like(words["input_ids"])
    mask[0, :100] = 0
    return Llama().bfloat16(), dict(words, attention_mask=mask)


def llama_inference():
    return Llama().bfloat16(), {"input_ids": text(8, 512)["input_ids"]}, None


class Lora(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def lora():
    model = Llama().bfloat16().requires_grad_(False)
    for layer in model.layers:
        for name in ("query", "value"):
            adapter = Lora(getattr(layer.attention, name)).bfloat16()
            adapter.base.requires_grad_(False)
            setattr(layer.attention, name, adapter)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return model, text(4, 512), torch.optim.AdamW(trained)


class Bert(nn.Module):
    def __init__(self, words=30522, width=256, depth=4, heads=4, dropout=0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.attentions = nn.ModuleList(
            Attention(width, heads, dropout=dropout) for _ in range(depth)
        )
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.head = nn.Linear(width, words)

    def forward(self, input_ids, attention_mask, labels):
        places = torch.arange(input_ids.shape[1], device="cuda")
        x = self.drop(self.norm(self.words(input_ids) + self.places(places)))
        mask = attention_mask[:, None, None, :].bool()
        mask = mask.expand(-1, 1, x.shape[1], -1)
        for number, (attention, inner) in enumerate(zip(self.attentions, self.inner, strict=True)):
            x = self.norms[2 * number](x + self.drop(attention(x, mask=mask)))
            x = self.norms[2 * number + 1](x + self.drop(inner(x)))
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten(), ignore_index=-100)


def bert():
    words = text(16, 128)
    mask = torch.ones_like(words["input_ids"])
    mask[:, 100:] = 0
    return Bert(), dict(words, attention_mask=mask)


class T5(nn.Module):
    """An encoder and a decoder with biases of relative places, without fused attention."""

    def __init__(self, words=8000, width=256, depth=3, heads=4):
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.biases = nn.ModuleList(nn.Embedding(32, heads) for _ in range(2))
        self.encoder = nn.ModuleList(Layer(width, heads, 0.1) for _ in range(depth))
        self.decoder = nn.ModuleList(Layer(width, heads, 0.1) for _ in range(depth))
        self.cross = nn.ModuleList(Attention(width, heads, dropout=0.1) for _ in range(depth))
        self.head = nn.Linear(width, words, bias=False)

    def bias(self, table, length, is_causal, device):
        places = torch.arange(length, device=device)
        distances = (places[None, :] - places[:, None]).clamp(-16, 15) + 16
        bias = table(distances).permute(2, 0, 1)[None]
        if is_causal:
            ahead = torch.ones(length, length, device=device, dtype=torch.bool).triu(1)
            bias = bias.masked_fill(ahead, torch.finfo(bias.dtype).min)
        return bias

    def forward(self, input_ids, labels):
        x, length = self.words(input_ids), input_ids.shape[1]
        bias = self.bias(self.biases[0], length, False, x.device)
        for layer in self.encoder:
            x = x + layer.attention(layer.norms[0](x), bias=bias)
            x = x + layer.mlp(layer.norms[1](x))
        y, length = self.words(labels), labels.shape[1]
        bias = self.bias(self.biases[1], length, True, x.device)
        none = torch.zeros(1, 1, 1, 1, device=x.device)
        for layer, cross in zip(self.decoder, self.cross, strict=True):
            y = y + layer.attention(layer.norms[0](y), bias=bias)
            y = y + cross(y, memory=x, bias=none)
            y = y + layer.mlp(layer.norms[1](y))
        return F.cross_entropy(self.head(y).flatten(0, 1), labels.flatten())


def t5_autocast():
    words = torch.zeros(8, 256, dtype=torch.long)
    return Autocast(T5()), {"input_ids": words, "labels": words[:, :128].contiguous()}


class Unet(nn.Module):
    def __init__(self):
        super().__init__()

        def block(inside, outside):
            return nn.Sequential(
                nn.Conv2d(inside, outside, 3, padding=1),
                nn.GroupNorm(8, outside),
                nn.SiLU(),
                nn.Dropout(0.1),
            )

        self.down = nn.ModuleList([block(3, 32), block(32, 64), block(64, 128)])
        self.up = nn.ModuleList([block(192, 64), block(96, 32)])
        self.last = nn.Conv2d(32, 4, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        third = self.down[2](F.max_pool2d(second, 2))
        second = self.up[0](torch.cat([F.interpolate(third, scale_factor=2), second], 1))
        first = self.up[1](torch.cat([F.interpolate(second, scale_factor=2), first], 1))
        return self.last(first)


def unet():
    return {
        "model": Unet(),
        "inputs": torch.zeros(32, 3, 128, 128),
        "targets": torch.zeros(32, 4, 128, 128),
        "loss": F.mse_loss,
    }


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10000, 256)
        self.lstm, self.last = nn.LSTM(256, 512, 2, batch_first=True), nn.Linear(512, 10000)

    def forward(self, x):
        return self.last(self.lstm(self.words(x))[0])


def lstm():
    return Recurrent(), torch.zeros(32, 64, dtype=torch.long)


def mlp():
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.GELU())]
    return nn.Sequential(*layers), torch.zeros(4096, 2048), "sgd"


def mlp_on_cuda():
    """The function itself moves the model, as programs do."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    return model, torch.zeros(4096, 2048, device=device), torch.optim.Adam(model.parameters())


class Routed(nn.Module):
    """A mixture of experts: how many rows an expert gets depends on the data."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x):
        chosen, y = self.gate(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                y[rows] = expert(x[rows])
        return y


def experts():
    return Routed(), torch.zeros(32, 64)


def __getattr__(name):
    """A model as it runs on the fake CUDA runtime, which has no cuDNN."""
    build = globals().get(name.replace("without_cudnn_", "", 1))
    if build is None:
        raise AttributeError(name)

    def without_cudnn():
        torch.backends.cudnn.enabled = False
        return build()

    return without_cudnn
