import torch
from sklearn.metrics import accuracy_score

from arelu_meta.metrics import accuracy


def test_equals_scikit_learn():
    random = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 4, generator=random), torch.randint(4, (50,), generator=random)
    assert abs(accuracy(logits, labels).item() - accuracy_score(labels, logits.argmax(1))) < 1e-7


def test_leading_axes_are_kept():
    """Two tasks of two rows: one of two right, two of two right."""
    logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    assert accuracy(logits, torch.tensor([[0, 1], [1, 0]])).tolist() == [0.5, 1.0]


def test_under_vmap():
    random = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(3, 5, 4, generator=random), torch.randint(4, (3, 5), generator=random)
    assert torch.equal(torch.vmap(accuracy)(logits, labels), accuracy(logits, labels))
