"""What pipelines read, traced and counted, and which chunks are advised for them."""

from oocarrays.advice import Advice as Advice
from oocarrays.plan.advice.trace import Trace as Trace
from oocarrays.storage.meter import metered as metered
from oocarrays.tracing import trace as trace, traced as traced
