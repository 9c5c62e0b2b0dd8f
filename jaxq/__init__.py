from importlib.metadata import version

from . import bikes as bikes
from . import exact as exact
from . import graphs as graphs
from . import heavy_traffic as heavy_traffic
from . import hosts as hosts
from . import plot as plot
from . import testing as testing
from .ensemble import load as load
from .fit import fit_scaling as fit_scaling
from .graph_study import graph_study as graph_study
from .graph_study import vertex_means as vertex_means
from .linear_noise import linear_noise as linear_noise
from .mean_field import fixed_point as fixed_point
from .mean_field import mean_field as mean_field
from .models.classes import SupermarketClasses as SupermarketClasses
from .models.graph import GraphSupermarket as GraphSupermarket
from .models.pools import Pool as Pool
from .models.pull import Pull as Pull
from .models.supermarket import Supermarket as Supermarket
from .models.two_queues import TwoQueues as TwoQueues
from .pair_approximation import pair_approximation as pair_approximation
from .pull_study import pull_study as pull_study
from .refined import refined as refined
from .sensitivity import sensitivity as sensitivity
from .simulate import simulate as simulate
from .stationary import stationary as stationary
from .study import scaling_study as scaling_study

__version__ = version("jaxq")
