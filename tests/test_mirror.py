"""The tests mirror the package path by path: `arelu_meta/A/B.py` is tested in `tests/A/test_B.py`.

`__main__.py` is tested in `test_main.py` of its folder; an `__init__.py` where it has code, in `test_init.py` or by the
contract (`test_contract.py`) that everything registered there is held to.
"""

from pathlib import Path

# Modules without a test file of their own, and the one that tests them instead.
ELSEWHERE = {
    # The registry of activations.
    "activations/listed.py": "activations/test_init.py",
    # Held side by side to one set of demands, beside torchvision's and timm's networks.
    "backbones/conv_block.py": "backbones/test_conv4.py",
    "backbones/mobilenet.py": "backbones/test_cifar_networks.py",
    "backbones/resnet.py": "backbones/test_cifar_networks.py",
    "backbones/shufflenet_v2.py": "backbones/test_cifar_networks.py",
    "backbones/squeezenet.py": "backbones/test_cifar_networks.py",
    "backbones/vgg.py": "backbones/test_cifar_networks.py",
    # Formats of one's own images: every reader gives the same set.
    "data/files/image_folders.py": "data/files/test_user_data.py",
    "data/files/image_files.py": "data/files/test_user_data.py",
    # Printed by the commands that compare.
    "comparison/result.py": "test_scripting.py",
    # What the two estimators share.
    "estimators/classifier.py": "estimators/test_fine_tune.py",
    # Engines are held to one meta-gradient.
    "learners/engines/func_engine.py": "learners/engines/test_agreement.py",
    "learners/engines/learn2learn_engine.py": "learners/engines/test_agreement.py",
    # Figures of the paper, drawn by one command from one store.
    "paper/curves.py": "paper/test_figures.py",
    "paper/finished.py": "paper/test_figures.py",
    "paper/looks.py": "paper/test_figures.py",
    # Specs are read by their commands, in files and flags; results are printed by them.
    "kinds/classify/spec.py": "kinds/test_sections.py",
    "kinds/segment/spec.py": "kinds/test_sections.py",
    "kinds/supervised_spec.py": "kinds/test_sections.py",
    "kinds/transfer/spec.py": "kinds/test_sections.py",
    "kinds/finetune/result.py": "kinds/finetune/test_run.py",
    "kinds/results.py": "kinds/test_contract.py",
    "kinds/images.py": "kinds/test_session.py",
    # Runs that are stopped and go on.
    "kinds/few_shot/checkpoint.py": "kinds/test_resume.py",
    # Parts of a copied store, which is compared as a whole.
    "store/copied_models.py": "store/test_syncing.py",
    "store/copied_runs.py": "store/test_syncing.py",
    "store/copied_versions.py": "store/test_syncing.py",
    # Crafted files, opened by every command that reads them.
    "trust.py": "faults/test_code_in_models.py",
    # Steps of one rewriting, whose outcome is what counts.
    "surgery/report.py": "surgery/test_swap.py",
    "surgery/sites.py": "surgery/test_swap.py",
    "surgery/traced_model.py": "surgery/test_tracing.py",
    "surgery/reachable_code.py": "surgery/test_parts.py",
}
# Test files of no single module.
ACROSS = {
    "kinds/few_shot/test_regression.py": "regression from end to end: data, run, report, stored model, flags",
    "analysis/test_coverage.py": "how often reports are right, by simulation",
    "activations/test_contract.py": "what every activation does",
    "backbones/test_cifar_networks.py": "networks for 32x32 images, side by side",
    "backbones/test_contract.py": "what every backbone does",
    "comparison/test_postgresql.py": "a comparison into a server",
    "data/test_contract.py": "what every bundled set does",
    "kernels/test_torch_interfaces.py": "private interfaces of torch that kernels lean on",
    "kinds/test_contract.py": "what every kind of run does",
    "kinds/test_resume.py": "runs of all kinds that are interrupted",
    "kinds/test_travelling_models.py": "stored models in another process and folder",
    "learners/engines/test_agreement.py": "three engines, one gradient",
    "learners/test_contract.py": "what every method does",
    "learners/test_families.py": "networks of timm and transformers",
    "learners/test_norm_statistics.py": "norms under every method",
    "learners/test_torch_operations.py": "torch's functions under vmap",
    "pretrained/test_efficientnet_lite0.py": "a real pretrained network from end to end",
    "pretrained/test_timm_families.py": "families of timm from end to end",
    "surgery/test_networks_of_others.py": "networks that cannot be traced as a whole",
    "faults/test_record.py": "what long trials keep of their attempts",
    "faults/test_page.py": "the page that long trials write",
    "faults/test_stored.py": "what long trials compare stores by",
    "faults/test_stored_rows.py": "what trials of `store sync` compare stores by",
    "faults/test_mutants.py": "damaged files of every format",
    "faults/test_strange_files.py": "pipes, bombs, links",
    "faults/test_code_in_models.py": "models, runs and tasks with code in them",
    "faults/test_machine.py": "full disks, folders that are gone, no memory",
    "test_house.py": "the sizes of the package",
    "test_cuda.py": "every kind of run on a GPU",
    "test_docs.py": "the pages of the documentation run",
    "test_docs_commands.py": "the commands that the pages name are there, flags and all",
    "test_docs_site.py": "tutorials, notebooks and mathematics of the documentation, and its site",
    "test_doctest.py": "the examples of docstrings run",
    "test_layers.py": "imports point downwards",
    "test_mirror.py": "this",
    "test_packaging.py": "the wheel",
    "test_scripting.py": "what scripts are given by every command",
    "test_paper_page.py": "docs/paper.md, worked out again",
    "test_prose.py": "what README and docs/findings.md say of the shipped results",
    "test_results.py": "the shipped results, worked out again",
    "test_public_names.py": "what users may call",
}


def test_every_module_has_its_test(root: Path):
    package, tests = root / "arelu_meta", root / "tests"
    modules = [path.relative_to(package) for path in package.rglob("*.py") if path.stem != "__init__"]
    without = {
        path.as_posix() for path in modules if not (tests / path.parent / f"test_{path.stem.strip('_')}.py").exists()
    }
    assert without - set(ELSEWHERE) == set(), "write the test, or say in ELSEWHERE which one tests the module"
    assert set(ELSEWHERE) <= {path.as_posix() for path in modules}
    assert [place for place in ELSEWHERE.values() if not (tests / place).exists()] == []


def test_every_test_has_its_module(root: Path):
    package, tests = root / "arelu_meta", root / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    homeless = {
        path.as_posix()
        for path in files
        for module in [path.stem.removeprefix("test_")]
        if not any((package / path.parent / f"{name}.py").exists() for name in (module, f"__{module}__"))
    }
    assert homeless == set(ACROSS), "name it after its module, or say in ACROSS what it tests"
