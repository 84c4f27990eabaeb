"""The user's own models: `package.module:factory`, made into a Net without changing a parameter's name.

The factory is called as `factory(input_shape, classes, **arguments)` and returns an nn.Module whose forward
gives (features, logits) or logits alone; then the features are the flattened input of the last nn.Linear
it calls. nn.Dropout layers are replaced by ours, which draw from the run's generator; dropout inside others
(nn.LSTM, nn.MultiheadAttention, F.dropout) draws from torch's global one: no promise of same bits.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from edgeflock.common.errors import BadValue, EdgeflockError
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.layers import SeededDropout

Factory = Callable[..., nn.Module]

_FORM = "package.module:factory, importable from here"
_CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_UNSEEDED = (nn.AlphaDropout, nn.FeatureAlphaDropout)


def load_custom(reference: str) -> Factory:
    """Import the factory that `package.module:factory` names.

    Raises BadValue if there is none.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise BadValue("--model", reference, _FORM)
    try:
        factory: Any = getattr(_imported(module_name), name, None)
    except ImportError as error:
        raise BadValue("--model", reference, f"{_FORM} ({error})") from None
    except Exception as error:
        raise BadValue("--model", reference, f"{_FORM} ({type(error).__name__}: {error})") from error
    if factory is None or not callable(factory):
        raise BadValue("--model", reference, f"{_FORM} ({module_name} has no function {name})")
    return cast("Factory", factory)


def _imported(name: str) -> ModuleType:
    """Import a module; one that lies where the command was typed is found too, after all others."""
    if "" not in sys.path:
        sys.path.append("")
    return importlib.import_module(name)


def call(
    factory: Factory, shape: tuple[int, ...], classes: int, texts: Mapping[str, str], reference: str
) -> nn.Module:
    """Call the factory. Raises BadValue with its own words if it fails, whatever a foreign factory raises."""
    try:
        return factory(shape, classes, **texts)
    except EdgeflockError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadValue(
            "--model", reference, f"a factory that can be called with ({shape}, {classes}) ({reason})"
        ) from error


def adapt(module: nn.Module, shape: tuple[int, ...], reference: str) -> Net:
    """Return the module as a Net.

    Raises BadValue if it is no module, has frozen parameters or no nn.Linear to take features from.
    """
    if not isinstance(module, nn.Module):
        raise BadValue(
            "--model", reference, f"a factory that returns an nn.Module, not {type(module).__name__}"
        )
    frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
    if frozen:
        raise BadValue(
            "--model", reference, f"a model without frozen parameters ({frozen[0]}; make it a buffer)"
        )
    seed_dropout(module, reference)
    return module if isinstance(module, Net) else Adapted(module, shape, reference)


def seed_dropout(module: nn.Module, reference: str) -> None:
    """Replace every nn.Dropout inside the module, in place."""
    for name, child in list(module.named_modules()):
        if isinstance(child, _UNSEEDED):
            raise BadValue("--model", reference, f"a model without {type(child).__name__} ({name})")
        if isinstance(child, (nn.Dropout, *_CHANNELWISE)) and name:
            owner, _, leaf = name.rpartition(".")
            ours = SeededDropout(child.p, whole_channels=isinstance(child, _CHANNELWISE))
            module.get_submodule(owner)._modules[leaf] = ours


class Adapted(Net):
    """A foreign module as a Net: it shares the module's parameters, buffers and children, names unchanged."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...], reference: str) -> None:
        super().__init__()
        object.__setattr__(self, "_foreign", module)  # not registered: names keep no prefix
        self._parameters = module._parameters
        self._buffers = module._buffers
        self._modules = module._modules
        self._seen: dict[str, Tensor] = {}
        self._pair = True
        self._probe(shape, reference)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output: Any = self._module(x)
        if self._pair:
            return output[0].flatten(1), output[1]
        return self._seen.pop("features").flatten(1), output

    def train(self, mode: bool = True) -> Adapted:
        super().train(mode)
        self._module.training = mode
        return self

    @property
    def _module(self) -> nn.Module:
        module: nn.Module = self.__dict__["_foreign"]
        return module

    def _probe(self, shape: tuple[int, ...], reference: str) -> None:
        """Run one sample through the module to learn what it returns and which nn.Linear comes last."""
        called: list[str] = []
        hooks = [
            child.register_forward_hook(lambda *_, name=name: called.append(name))
            for name, child in self._module.named_modules()
            if isinstance(child, nn.Linear)
        ]
        self.eval()
        try:
            with torch.no_grad():
                output: Any = self._module(torch.zeros(1, *shape))
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise BadValue(
                "--model", reference, f"a model that takes an input of shape {shape} ({reason})"
            ) from None
        finally:
            for hook in hooks:
                hook.remove()
            self.train()
        self._pair = isinstance(output, tuple) and len(output) == 2
        if not self._pair and (not isinstance(output, Tensor) or not called):
            raise BadValue(
                "--model", reference, "a forward that returns (features, logits), or logits of an nn.Linear"
            )
        if called:
            self._name_head(called[-1])
        with torch.no_grad():
            self.eval()
            self.features = self(torch.zeros(1, *shape))[0].shape[1]
            self.train()

    def _name_head(self, name: str) -> None:
        self.head_name = name
        if not self._pair:
            head = self._module.get_submodule(name)
            head.register_forward_pre_hook(lambda _, inputs: self._seen.__setitem__("features", inputs[0]))
