from importlib.metadata import version

from . import graphs as graphs
from .ensemble import load as load
from .models.graph import GraphSupermarket as GraphSupermarket
from .models.supermarket import Supermarket as Supermarket
from .simulate import simulate as simulate

__version__ = version("jaxq")
