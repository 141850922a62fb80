"""Networks of others with the weights they come with: by name, with a head for other classes and other activations.

from arelu_meta.pretrained.assembly import assemble

made = assemble("resnet18", weights="DEFAULT", images=my_images, activation="arelu", preserve=True)
made.network, made.inputs, made.report
"""
