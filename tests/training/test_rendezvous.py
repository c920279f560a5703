"""Processes that are started again do not read what those before them have left in the store of torchrun."""

from concurrent.futures import ThreadPoolExecutor

from torch.distributed import HashStore

from bothways.training.distributed import new_store


def test_processes_that_are_started_again_have_a_store_of_their_own():
    shared, world = HashStore(), 3
    shared.set("asks 2", "a process that has died since")
    for _ in range(3):
        with ThreadPoolExecutor(world) as threads:
            stores = [*threads.map(lambda rank: new_store(shared, rank, world), range(world))]
        assert not any(store.check(["address"]) for store in stores)
        stores[0].set("address", "here")
        assert [store.get("address") for store in stores] == [b"here"] * world
