"""The throttles that `partitions reassign` leaves, in virtual time."""

from odradek.cli.partitions.throttle import remove_throttle, set_log_dirs_throttle
from odradek.model import TopicPartition
from odradek.simulation.world import World, until
from tests.broker.replication.test_moves_between_directories import CONFIG, fill_slowly, move, other_of, place
from tests.world.scenes import in_world
from tests.world.topics import T0, create


@in_world(CONFIG, brokers=1)
async def test_the_limit_between_directories_stays_while_another_plan_moves_logs(world: World) -> None:
    await create(world)
    await fill_slowly(world)
    source, another = place(world), [TopicPartition("another", 0)]
    async with world.admin() as admin:
        await set_log_dirs_throttle(admin, {T0: (0,)}, 20_000)
        await until(lambda: world.broker.config.replica_alter_log_dirs_io_max_bytes_per_second == 20_000)
        await move(world, other_of(source))
        assert await remove_throttle(admin, another) == []
        assert place(world) == source
        await until(lambda: place(world) == other_of(source))
        assert await remove_throttle(admin, another) == ["broker 0"]
