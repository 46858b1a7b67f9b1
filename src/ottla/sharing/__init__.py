"""The share-partition leader (KIP-932): who holds which record, and since when.

Pure so far: `partition` is the machine of one share partition, `sessions` what members fetch,
`requests` the checks a request passes before either hears of it.
"""
