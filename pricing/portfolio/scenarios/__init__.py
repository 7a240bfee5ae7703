from .revaluation import Revaluation as Revaluation
from .revaluation import revalue as revalue
from .scenario import Scenario as Scenario
from .scenario_set import ScenarioSet as ScenarioSet
