"""The text of a pipeline that has one of everything."""

THREE_FLOWS = """
from ottla.spark.pipelines import console, flow, on_batch, reject, samples, source, table, topic

source("orders", topic="orders", schema="shop string, amount double")

@flow("totals", reads=["clean"], writes=topic("totals", key="shop"), mode="update")
def totals(clean):
    return clean.groupBy("shop").sum("amount")

@flow("clean", reads=["orders"], writes=topic("clean"), trigger="2s")
@reject(to="bad", when="amount < 0")
def clean(orders):
    return orders

@flow("large", inline=True)
def large(clean):
    return clean.where("amount > 100")

@flow("archive", reads=["large"], writes=table("large"))
def archive(large):
    return large

@on_batch("totals")
def tell(progress): ...

@samples("orders")
def some(): ...
"""
