"""Mutators, which users write to change graphs, and the sites that they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn
from torch.fx import Node

from ....base.errors import UsageError
from .layers import Maker, recipe
from .primitives import ModelGraph, Primitive

#: Most primitives of one mutator in one model. A mutator that needs more is taken to be endless.
LIMIT = 1000
T = TypeVar("T")
#: A function that answers a mutator's choice: it takes a label and candidates, and returns a
#: candidate.
Choose = Callable[[str, Sequence[Any]], Any]
#: Classes of layers, or a function that takes a site and returns True if it matches.
Match = type[nn.Module] | tuple[type[nn.Module], ...] | Callable[["Site"], bool]


class Site:
    """A place in a graph that a mutator may change: a layer with all its calls, or an operation.

    Each method that changes the graph is a primitive, which is noted in the log. A new layer is
    given as the name of a class in torch.nn, or as a class or function of a module, together with
    its arguments, which must be JSON. Its input sizes need not be right: shapes are repaired after
    all mutators have run.
    """

    def __init__(self, graph: ModelGraph, node: Node, mutator: str, choose: Choose) -> None:
        self._graph = graph
        self._choose = choose
        self._at = node.name
        self._mutator = mutator

    @property
    def name(self) -> str:
        """The layer's name in the model, such as "body.0.conv3", or the operation's name."""
        node = self._node
        return str(node.target) if node.op == "call_module" else node.name

    @property
    def module(self) -> nn.Module | None:
        """The layer at this place; None for an operation."""
        return self._graph.module(self._node)

    @property
    def function(self) -> Any:
        """The function, or the name of the method, that the operation calls; None for a layer."""
        return self._node.target if self.module is None else None

    @property
    def inputs(self) -> list[Site]:
        """The sites whose values this site reads, in the order of its arguments."""
        return [self._site(each) for each in self._node.all_input_nodes]

    def find(self, name: str) -> Site:
        """Return the site with this name. Raises UsageError if there is none."""
        sites = {each.name: each for each in sites_of(self._graph, self._mutator, self._choose)}
        if name not in sites:
            raise UsageError.refuse("the site to find", name, f"one of {', '.join(sites)}")
        return sites[name]

    def choose(self, label: str, candidates: Sequence[T]) -> T:
        """Return one of ``candidates``, as ``nas.choice`` does. ``label`` names the parameter.

        Sites that use the same label share one choice. Put ``site.name`` into the label to give
        each site its own.
        """
        candidate: T = self._choose(label, candidates)
        return candidate

    def replace(self, make: Maker, *args: Any, **kwargs: Any) -> Site:
        """Put another layer in this site's place, under its name; return the new layer's site."""
        return self._apply("replace", layer=recipe(make, args, kwargs))

    def insert(self, make: Maker, *args: Any, **kwargs: Any) -> Site:
        """Insert a layer after this site, before all its readers; return the new layer's site."""
        return self._apply("insert", layer=recipe(make, args, kwargs))

    def remove(self) -> None:
        """Remove this site, so that its readers read its input."""
        self._apply("remove")

    def connect(self, other: Site, how: str = "add") -> Site:
        """Add the value of ``other`` to this site's, or concatenate both along dimension 1 ("cat").

        Returns the site of the result.
        """
        return self._apply("connect", other=_node_of(other), how=how)

    def rewire(self, index: int, other: Site) -> Site:
        """Let this site read ``other`` in place of input ``index``, counted as in ``inputs``."""
        return self._apply("rewire", index=index, other=_node_of(other))

    def update(self, **arguments: Any) -> Site:
        """Make this layer again with changed arguments, such as ``kernel_size=5, padding=2``."""
        return self._apply("update", arguments=recipe(nn.Module, (), arguments)["kwargs"])

    @property
    def _node(self) -> Node:
        return self._graph.node(self._at)

    def _site(self, node: Node) -> Site:
        return Site(self._graph, node, self._mutator, self._choose)

    def _apply(self, operation: str, **values: Any) -> Site:
        if sum(each.by == self._mutator for each in self._graph.log) >= LIMIT:
            raise UsageError(f"it applied {LIMIT} primitives, and does not end", self._mutator)
        name = self._graph.apply(Primitive(operation, self._at, self._mutator, values))
        return self._site(self._graph.node(name)) if operation != "remove" else self


@dataclass(frozen=True, slots=True)
class Mutator:
    """A rule that changes graphs: which sites it matches, and what it does at each of them."""

    name: str
    match: Match
    act: Callable[[Site], None]
    needed: bool

    def apply(self, graph: ModelGraph, opaque: Mapping[str, str], choose: Choose) -> None:
        """Apply the mutator to each site that matches now, in the order of the graph.

        Sites that the mutator itself has removed meanwhile are skipped, and sites that it adds are
        not matched. ``choose`` answers its choices. Raises UsageError with the mutator's name if no
        site matches, and for a primitive that is impossible.
        """
        sites = [each for each in sites_of(graph, self.name, choose) if self._matches(each)]
        if not sites and self.needed:
            parts = "".join(
                f"; {name or 'the model'} is opaque: {why}" for name, why in opaque.items()
            )
            raise UsageError(
                f"the mutator {self.name!r} matches nothing in this model{parts} (needed=False"
                " leaves such a model as it is)",
                self.name,
            )
        for site in sites:
            if site._at not in {node.name for node in graph.graph.nodes}:
                continue
            where = site.name
            try:
                self.act(site)
            except UsageError as error:
                raise UsageError(
                    f"the mutator {self.name!r} at {where}: {error}", self.name
                ) from error
            except Exception as error:
                error.add_note(f"in the mutator {self.name!r} at {where}")
                raise

    def _matches(self, site: Site) -> bool:
        if isinstance(self.match, type | tuple):
            return isinstance(site.module, self.match)
        return bool(self.match(site))


def _node_of(other: object) -> str:
    if not isinstance(other, Site):
        raise UsageError.refuse("the other site", other, "a site, as site.find(name) gives it")
    return other._at


def sites_of(graph: ModelGraph, mutator: str, choose: Choose) -> list[Site]:
    """Return all sites of a graph: each layer once, at its first call, and each operation."""
    sites, layers = [], set()
    for node in graph.graph.nodes:
        if node.op in {"call_module", "call_function", "call_method"}:
            if node.op != "call_module" or node.target not in layers:
                sites.append(Site(graph, node, mutator, choose))
            layers.add(node.target)
    return sites


def mutator(*, match: Match, needed: bool = True) -> Callable[[Callable[[Site], None]], Mutator]:
    """Return a decorator that makes a mutator of a function, to be called with each matching site.

    ``match`` is a class of layers, several in a tuple, or a function of a site. If ``needed`` is
    True, a model in which no site matches is refused. Mutators are applied in the order in which
    they are given, each to the graph that the earlier ones have made.
    """
    classes = match if isinstance(match, tuple) else ()
    is_predicate = callable(match) and not isinstance(match, nn.Module)
    if not is_predicate and not (classes and all(isinstance(each, type) for each in classes)):
        allowed = "a class of layers, several in a tuple, or a function of a site"
        raise UsageError.refuse("the match of a mutator", match, allowed)

    def decorate(act: Callable[[Site], None]) -> Mutator:
        return Mutator(act.__name__, match, act, needed)

    return decorate
