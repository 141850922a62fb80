"""Networks of timm and Hugging Face, small and with random weights, as nobody here wrote them."""

from typing import Any

import torch
from torch import Tensor, nn

CLASSES = 3
# timm: the smallest of a family, the side of the images it is given, and what makes it smaller.
_SHALLOW: dict[str, Any] = {"depth": 2}
TIMM: dict[str, tuple[int, dict[str, Any]]] = {
    "beit_base_patch16_224": (32, {"img_size": 32, "embed_dim": 48, "num_heads": 3, **_SHALLOW}),
    "cait_xxs24_224": (32, {"img_size": 32, **_SHALLOW}),
    "convit_tiny": (32, {"img_size": 32, **_SHALLOW, "local_up_to_layer": 1}),
    "convnext_atto": (64, {}),
    "convnextv2_atto": (64, {}),
    "cs3darknet_s": (64, {}),
    "darknet17": (64, {}),
    "deit_tiny_patch16_224": (32, {"img_size": 32, **_SHALLOW}),
    "densenet121": (64, {"block_config": (2, 2, 2, 2)}),
    "dla46_c": (64, {}),
    "edgenext_xx_small": (64, {}),
    "efficientnet_b0": (64, {}),
    "efficientvit_b0": (64, {}),
    "eva02_tiny_patch14_224": (28, {"img_size": 28, **_SHALLOW}),
    "fastvit_t8": (64, {}),
    "fbnetc_100": (64, {}),
    "ghostnet_050": (64, {}),
    "gmixer_12_224": (32, {"img_size": 32}),
    "gmlp_ti16_224": (32, {"img_size": 32}),
    "hardcorenas_a": (64, {}),
    "hgnetv2_b0": (64, {}),
    "lambda_resnet26t": (64, {}),
    "levit_128s": (64, {"img_size": 64}),
    "mixer_s32_224": (32, {"img_size": 32}),
    "mixnet_s": (64, {}),
    "mobilenetv2_035": (64, {}),
    "mobilenetv3_small_050": (64, {}),
    "mobilenetv4_conv_small_035": (64, {}),
    "mobilevit_xxs": (64, {}),
    "nf_regnet_b0": (64, {}),
    "pit_ti_224": (64, {"img_size": 64}),
    "poolformerv2_s12": (64, {"layers": (1, 1, 1, 1)}),
    "pvt_v2_b0": (64, {}),
    "regnetx_002": (64, {}),
    "regnety_002": (64, {}),
    "repghostnet_050": (64, {}),
    "repvgg_a0": (64, {}),
    "resmlp_12_224": (32, {"img_size": 32}),
    "resnest14d": (64, {}),
    "resnet10t": (64, {}),
    "resnetv2_18": (64, {}),
    "rexnet_100": (64, {}),
    "selecsls42": (96, {}),  # at 64 a change of 1e-15 in the weights moves the meta-gradient by 2e-7
    "seresnet18": (64, {}),
    "skresnet18": (64, {}),
    "starnet_s1": (64, {}),
    "swin_tiny_patch4_window7_224": (64, {"img_size": 64, "window_size": 4, "depths": (1, 1, 2, 1), "embed_dim": 24}),
    "tf_efficientnet_lite0": (64, {}),
    "tinynet_e": (64, {}),
    "visformer_tiny": (64, {"img_size": 64}),
    "vit_tiny_patch16_224": (32, {"img_size": 32, **_SHALLOW}),
    "xcit_nano_12_p16_224": (32, {"img_size": 32, **_SHALLOW}),
}


def timm_network(name: str) -> nn.Module:
    """A network of timm without anything random in its forward pass."""
    import timm

    torch.manual_seed(0)
    return still(timm.create_model(name, num_classes=CLASSES, **TIMM[name][1]))


def still(network: nn.Module) -> nn.Module:
    """Switch off whatever draws random numbers in training mode."""
    for module in network.modules():
        for attribute in ("p", "drop_prob", "drop_rate", "drop_path_prob", "dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    return network


class Logits(nn.Module):
    """A Hugging Face model as a function from images to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(pixel_values=x).logits


def _transformer(**more: Any) -> dict[str, Any]:
    return {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, **more}


# Hugging Face: the model's name in transformers, and a small configuration.
HUGGING_FACE: dict[str, dict[str, Any]] = {
    "ViT": _transformer(image_size=32, patch_size=16),
    "DeiT": _transformer(image_size=32, patch_size=16),
    "Beit": _transformer(image_size=32, patch_size=16, use_relative_position_bias=True),
    "Swin": {"image_size": 32, "patch_size": 4, "embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2],
             "window_size": 4},
    "ConvNext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "MobileNetV2": {"depth_multiplier": 0.25, "image_size": 64},
    "CLIP": {},
    "Dinov2": {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    "RegNet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
    "PoolFormer": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "patch_sizes": [7, 3],
                   "strides": [4, 2], "padding": [2, 1]},
    "Segformer": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "sr_ratios": [2, 1],
                  "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]},
}  # fmt: skip
HUGGING_FACE_SIZES = {"ViT": 32, "DeiT": 32, "Beit": 32, "Swin": 32, "CLIP": 32, "Dinov2": 28}


def hugging_face_network(name: str) -> nn.Module:
    """A model of transformers, made from its configuration; nothing is downloaded."""
    import transformers

    torch.manual_seed(0)
    options = dict(HUGGING_FACE[name])
    if name == "CLIP":
        options = {"vision_config": _transformer(image_size=32, patch_size=16), "projection_dim": 16}
    config = getattr(transformers, f"{name}Config")(num_labels=CLASSES, **options)
    return still(Logits(getattr(transformers, f"{name}ForImageClassification")(config)))
