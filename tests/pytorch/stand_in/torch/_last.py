"""PyTorch imports many modules after `torch.cuda`."""
