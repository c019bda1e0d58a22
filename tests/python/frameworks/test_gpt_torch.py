"""Gpt, losses, optimisers and windows beside PyTorch's and Hugging Face's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

import cephalo


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A random GPT-2 of Hugging Face, and ours from its folder."""
    torch.manual_seed(1)
    theirs = GPT2LMHeadModel(GPT2Config(
        vocab_size=60, n_positions=24, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=59, eos_token_id=59))
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.save_pretrained(folder)
    return theirs.train(), cephalo.Gpt.load(folder)


def ids(*shape, seed=0):
    return torch.randint(0, 60, shape, generator=torch.Generator().manual_seed(seed))


def test_logits_are_hugging_faces_and_of_the_callers_kind(both):
    theirs, ours = both
    logits = ours(ids(2, 9))
    assert isinstance(logits, torch.Tensor) and ours.eos_token_id == 59
    assert (logits - theirs(ids(2, 9)).logits).abs().max() <= 1e-4


def test_the_way_back_to_hugging_face(both, tmp_path):
    theirs, ours = both
    ours.save(tmp_path / "model")
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in theirs.state_dict().items())


def test_ten_steps_give_pytorchs_losses(both, tmp_path):
    theirs, _ = both
    theirs.save_pretrained(tmp_path / "start")
    ours, model = cephalo.Gpt.load(tmp_path / "start"), GPT2LMHeadModel.from_pretrained(tmp_path / "start")
    model.train()
    decayed = {name for name, kind in ours.parameter_kinds.items() if kind == "matrix"}
    optimizer = torch.optim.AdamW([
        {"params": [p for n, p in model.named_parameters() if n in decayed], "weight_decay": 0.1},
        {"params": [p for n, p in model.named_parameters() if n not in decayed], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95))
    rows = ids(40, 17, seed=3)
    trainer = cephalo.Trainer(ours, lambda number: rows[number], batch=4, context_length=16,
                              schedule=cephalo.Schedule(1e-3, 1, 10, 1.0))
    for step in range(10):
        batch = rows[4 * step:4 * step + 4]
        loss = F.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        record = trainer.step()
        assert abs(record.loss - loss.item()) <= 1e-4
        assert abs(record.gradient_norm - norm.item()) <= 1e-3 * norm.item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_and_steps_work_on_tensors_in_place(dtype):
    torch.manual_seed(0)
    logits = torch.randn(6, 9, dtype=dtype, requires_grad=True)
    targets = torch.tensor([0, 8, 3, -100, 2, 2])
    expected = F.cross_entropy(logits, targets)
    expected.backward()
    d = torch.empty_like(logits, requires_grad=False)
    assert abs(cephalo.cross_entropy(logits.detach(), targets, d) - expected.item()) <= 1e-6
    assert (d - logits.grad).abs().max() <= 1e-6
    ours, theirs = (torch.ones(3, 4, dtype=dtype) for _ in range(2))
    optimizer, state = torch.optim.AdamW([theirs], lr=0.1), cephalo.AdamWState()
    for _ in range(3):
        theirs.grad = torch.randn(3, 4, dtype=dtype)
        cephalo.adamw_step(ours, theirs.grad, state, learning_rate=0.1)
        optimizer.step()
    assert (ours - theirs).abs().max() <= 1e-6
    gradients = [torch.randn(5, dtype=dtype), torch.randn(2, 3, dtype=dtype)]
    parameters = [torch.zeros_like(g, requires_grad=True) for g in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 0.5)
    assert cephalo.clip_gradient_norm(gradients, 0.5) == pytest.approx(norm.item(), rel=1e-6)
    assert all((g - p.grad).abs().max() <= 1e-6 for g, p in zip(gradients, parameters))


def test_windows_come_in_the_order_of_a_data_loader():
    tokens = torch.arange(100)
    windows = cephalo.Windows(tokens, 4, batch=3, shuffle=True, order="torch", seed=7)
    firsts = TensorDataset(torch.arange(0, 96, 4))
    torch.manual_seed(7)
    loader = DataLoader(firsts, batch_size=3, shuffle=True, drop_last=True)
    for epoch in (0, 1):
        for number, (begin,) in enumerate(loader):
            inputs, targets = windows.batch(epoch, number)
            assert isinstance(inputs, torch.Tensor) and torch.equal(inputs[:, 0], begin)
            assert torch.equal(targets, inputs + 1)


def test_a_greedy_text_is_hugging_faces(both):
    theirs, ours = both
    prompt = ids(1, 5, seed=9)
    expected = theirs.eval().generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=59,
                                      attention_mask=torch.ones_like(prompt))[0, 5:].tolist()
    assert ours.generate(prompt[0], 8, temperature=0).ids == expected
    theirs.train()
    assert np.isfinite(ours.loss(prompt, prompt))
