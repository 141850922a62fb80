"""scikit-learn estimators: a meta-trained model fitted with a few examples, and anyone's network fine-tuned.

from arelu_meta.estimators import FewShotClassifier, FineTuneClassifier
"""

from arelu_meta.estimators.few_shot import FewShotClassifier
from arelu_meta.estimators.fine_tune import FineTuneClassifier

__all__ = ["FewShotClassifier", "FineTuneClassifier"]
