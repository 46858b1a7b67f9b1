"""Errors of metadata changes, configuration and the metadata store.

Every error has three facts: what was expected, what was found, and where. The broker maps the types
to Kafka's error codes; nothing here knows the protocol.
"""

from ottla.errors import OttlaError
from ottla.wire.errors import Mismatch


class MetadataError(Mismatch):
    """Base class of metadata errors."""

    summary = "metadata error"


class ChangeRefused(MetadataError):
    """The change does not fit the image; nothing was changed."""

    summary = "change refused"


class InvalidTopicName(ChangeRefused):
    """The name is empty, too long, has a character that is not legal, or is a path step."""

    summary = "invalid topic name"


class TopicNameCollision(ChangeRefused):
    """Another topic has the same name but for '.' and '_', which metrics cannot tell apart."""

    summary = "topic name collision"


class TopicExists(ChangeRefused):
    """A topic of that name or id exists already."""

    summary = "topic exists"


class UnknownTopic(ChangeRefused):
    """No topic has this name or id."""

    summary = "unknown topic"


class UnknownPartition(ChangeRefused):
    """The topic has fewer partitions."""

    summary = "unknown partition"


class InvalidPartitions(ChangeRefused):
    """The number of partitions is zero, shrinks, or is above the limit."""

    summary = "invalid number of partitions"


class InvalidReplicaAssignment(ChangeRefused):
    """Replicas are missing or repeated, or leader and in-sync replicas are not among them."""

    summary = "invalid replica assignment"


class UnknownBroker(ChangeRefused):
    """No broker is registered under this node id."""

    summary = "unknown broker"


class StaleBrokerEpoch(ChangeRefused):
    """The broker has registered again: the request comes from an older incarnation."""

    summary = "stale broker epoch"


class StalePartitionEpoch(ChangeRefused):
    """The partition has changed since the caller read it."""

    summary = "stale partition epoch"


class ProducerIdsExhausted(ChangeRefused):
    """No producer ids are left below 2^63, or the block asked for is not a positive number."""

    summary = "no such block of producer ids"


class InvalidFeatureLevel(ChangeRefused):
    """Feature levels are 0 (off) or above."""

    summary = "invalid feature level"


class ClusterIdFixed(ChangeRefused):
    """A cluster keeps the id it was given at first."""

    summary = "cluster id is fixed"


class InvalidAcl(ChangeRefused):
    """An ACL or a filter of ACLs has a value that means nothing."""

    summary = "invalid ACL"


class UnacceptableCredential(ChangeRefused):
    """The user's name, or its credential, is too weak or malformed."""

    summary = "unacceptable credential"


class InvalidQuota(ChangeRefused):
    """A quota, its entity or a filter of quotas has a value that means nothing."""

    summary = "invalid quota"


class StoreError(MetadataError):
    """The metadata store failed."""

    summary = "metadata store error"


class CorruptStore(StoreError):
    """The file is not a metadata store, or its content contradicts itself."""

    summary = "corrupt metadata store"


class UnsupportedSchema(StoreError):
    """The store was written by a version of Ottla whose schema this one does not know."""

    summary = "unsupported metadata schema"


class StoreUnavailable(StoreError):
    """The file cannot be opened, locked or written; the proposal may be retried."""

    summary = "metadata store unavailable"


class StoreBusy(StoreUnavailable):
    """Another process holds the store's lock for longer than a change waits; nothing changed."""

    summary = "metadata store busy"


class ConfigError(MetadataError, OttlaError):
    """Invalid configuration key or value."""

    summary = "configuration error"


class UnknownConfig(ConfigError):
    """No such key; the message names the nearest one that exists."""

    summary = "unknown configuration key"


class InvalidConfig(ConfigError):
    """The key exists, the value is not one it takes."""

    summary = "invalid configuration value"
