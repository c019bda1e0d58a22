"""The names of the book's class on a layer: mha.W_query.weight, mha.heads[0], mha.state_dict()."""


class Part:
    """A part of a layer, under the name of its parameters: part.weight, part.bias, heads[0].

    Its arrays are those of layer.parameters: read-only, over the layer's own memory.
    """

    __slots__ = ("_layer", "_name")

    def __init__(self, layer, name):
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name):
        found = _find(self._layer, f"{self._name}.{name}")
        if found is not None:
            return found
        if name == "bias" and _find(self._layer, f"{self._name}.weight") is not None:
            return None  # as nn.Linear(bias=False) has it
        raise AttributeError(f"{self._name} has no {name}; it has {', '.join(self._own())}")

    def __setattr__(self, name, value):
        raise AttributeError(f"{self._name}.{name} is set by update({self._name + '.' + name!r}, value)")

    def __getitem__(self, index):
        return Part(self._layer, f"{self._name}.{range(len(self))[index]}")

    def __len__(self):
        return len({name for name in self._own() if name.isdigit()})

    def __dir__(self):
        return self._own()

    def __repr__(self):
        inside = self._name + "."
        shapes = (f"{name.removeprefix(inside)}: {tuple(array.shape)}"
                  for name, array in self._layer.parameters.items() if name.startswith(inside))
        return f"{self._name}({', '.join(shapes)})"

    def _own(self):
        return _components(self._layer, self._name + ".")


def _components(layer, inside=""):
    """What comes after `inside` in the names of the parameters, up to the next point."""
    names = (name.removeprefix(inside) for name in layer.parameters if name.startswith(inside))
    return list(dict.fromkeys(name.split(".")[0] for name in names))


def _find(layer, name):
    """The parameter of that name, the part that has some, or None."""
    parameters = layer.parameters
    if name in parameters:
        return parameters[name]
    return Part(layer, name) if _components(layer, name + ".") else None


def attribute(layer, name):
    """What a layer has besides its methods: parts by name."""
    found = None if name.startswith("__") else _find(layer, name)
    if found is not None:
        return found
    if name == "mask":
        raise AttributeError(f"this {type(layer).__name__} has no mask: causal={layer.causal}, "
                             f"context_length={layer.context_length}")
    raise AttributeError(f"{type(layer).__name__!r} object has no attribute {name!r}; its parameters "
                         f"are in {', '.join(_components(layer))}")


def names(layer):
    return [*object.__dir__(layer), *_components(layer)]


def state_dict(layer):
    """name -> array, as the book's class has it: the parameters, read-only, and its mask buffers.

    to_torch_state_dict() gives tensors, for load_state_dict of a PyTorch module.
    """
    has_mask = layer.causal and layer.context_length > 0
    parameters = layer.parameters
    if has_mask and layer.form == "separate":
        return {"mask": layer.mask, **parameters}
    if not has_mask or layer.form != "heads":
        return parameters
    state = {}
    for name, array in parameters.items():
        if name.startswith("heads."):
            state.setdefault(f"heads.{name.split('.')[1]}.mask", layer.mask)
        state[name] = array
    return state
