"""The share-partition leader (KIP-932): which member holds which record.

Pure so far: `partition` is the machine of one share partition, `sessions` what members fetch,
`requests` checks requests before the others see them.
"""
