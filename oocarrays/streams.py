"""Files of many streams, one for each cell of a shape: see `open_streams`."""

from oocarrays.streaming.on_workers import RankStreams as RankStreams
from oocarrays.streaming.opening import open_streams as open_streams, streams_from_ragged as streams_from_ragged
from oocarrays.streaming.ragged import Ragged as Ragged
from oocarrays.streaming.streams import Streams as Streams
