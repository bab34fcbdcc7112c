"""What may be created of queues, flavors and all kinds but Workloads, and how the CRDs refuse the rest."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cluster.crd_objects import (
    NOW,
    PROVISIONING,
    Object,
    cluster_queue,
    condition,
    flavor,
    group,
    many,
    obj,
    quota,
    topology,
    workload,
)


@dataclass(frozen=True)
class Create:
    """`want` are parts of the refusal; none: it is accepted. `status` is written after the create."""

    id: str
    object: Object
    want: tuple[str, ...] = ()
    status: Object | None = None


def refused(id: str, object: Object, *want: str) -> Create:  # noqa: A002
    return Create(id, object, want)


def status(id: str, status: Object, *want: str, of: Object | None = None) -> Create:  # noqa: A002
    return Create(id, of or workload(), want, status)


CREATES = [
    # ---- ClusterQueue
    Create("a cluster queue needs nothing", cluster_queue()),
    Create("a cluster queue may say everything", cluster_queue(
        resourceGroups=[group(quota(borrowingLimit="4", lendingLimit="0.5"))], cohortName="all.of-us",
        queueingStrategy="StrictFIFO", namespaceSelector={}, stopPolicy="Hold", fairSharing={"weight": "500m"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
        preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5}},
        admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["h100"]}]},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        concurrentAdmissionPolicy={"migration": {
            "mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "h100"}}},
    )),
    refused("seventeen resource groups are too many",
            cluster_queue(resourceGroups=[group(quota(f"r{i}")) for i in range(17)]), "spec.resourceGroups", "16"),
    refused("a group covers at least one resource",
            cluster_queue(resourceGroups=[{"coveredResources": [], "flavors": group()["flavors"]}]),
            "spec.resourceGroups[0].coveredResources"),
    refused("a group has at least one flavor",
            cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": []}]),
            "spec.resourceGroups[0].flavors"),
    refused("a group has at most 64 flavors",
            cluster_queue(resourceGroups=[
                {"coveredResources": ["cpu"], "flavors": many(65, resources=[quota("cpu")])}
            ]),
            "spec.resourceGroups[0].flavors", "64"),
    refused("a group covers at most 64 resources",
            cluster_queue(resourceGroups=[group(*(quota(f"r{i}") for i in range(65)))]),
            "spec.resourceGroups[0].coveredResources", "64"),
    refused("a flavor stands once in a group",
            cluster_queue(resourceGroups=[{**group(), "flavors": group()["flavors"] * 2}]),
            "spec.resourceGroups[0].flavors[1]", "Duplicate"),
    refused("a resource stands once in a flavor",
            cluster_queue(resourceGroups=[group(quota(), quota())]),
            "spec.resourceGroups[0].flavors[0].resources[1]", "Duplicate"),
    refused("a flavor lists as many resources as are covered",
            cluster_queue(resourceGroups=[group(covered=["cpu", "memory"])]), "spec.resourceGroups[0].flavors",
            "flavors must have the same number of resources as the coveredResources"),
    refused("a flavor's name is a subdomain",
            cluster_queue(resourceGroups=[group(flavor="H_100")]), "spec.resourceGroups[0].flavors[0].name"),
    refused("a flavor's name has at most 253 characters",
            cluster_queue(resourceGroups=[group(flavor="x" * 254)]), "spec.resourceGroups[0].flavors[0].name", "253"),
    refused("a nominal quota is required",
            cluster_queue(resourceGroups=[group({"name": "cpu"})]),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    refused("a nominal quota is a quantity",
            cluster_queue(resourceGroups=[group({"name": "cpu", "nominalQuota": "eight"})]),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    refused("without a cohort there is no borrowing limit",
            cluster_queue(resourceGroups=[group(quota(borrowingLimit=1))]), "spec.resourceGroups",
            "borrowingLimit must be nil when cohort is empty"),
    refused("a cohort's name is a subdomain", cluster_queue(cohortName="-a"), "spec.cohortName"),
    refused("an unknown queueing strategy", cluster_queue(queueingStrategy="LIFO"), "spec.queueingStrategy",
            "StrictFIFO", "BestEffortFIFO"),
    refused("an unknown stop policy", cluster_queue(stopPolicy="Now"), "spec.stopPolicy", "HoldAndDrain"),
    refused("the old fungibility values are gone", cluster_queue(flavorFungibility={"whenCanBorrow": "Borrow"}),
            "spec.flavorFungibility.whenCanBorrow", "MayStopSearch"),
    refused("the old preemption value is gone", cluster_queue(flavorFungibility={"whenCanPreempt": "Preempt"}),
            "spec.flavorFungibility.whenCanPreempt", "TryNextFlavor"),
    refused("an unknown preference",
            cluster_queue(flavorFungibility={"whenCanBorrow": "TryNextFlavor", "preference": "Luck"}),
            "spec.flavorFungibility.preference"),
    refused("a preference needs both policies to try the next flavor",
            cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
            "spec.flavorFungibility.preference", "TryNextFlavor"),
    refused("an unknown reclaim policy", cluster_queue(preemption={"reclaimWithinCohort": "Some"}),
            "spec.preemption.reclaimWithinCohort"),
    refused("an unknown policy within the queue", cluster_queue(preemption={"withinClusterQueue": "Any"}),
            "spec.preemption.withinClusterQueue"),
    refused("an unknown policy of borrowing",
            cluster_queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Any"}}),
            "spec.preemption.borrowWithinCohort.policy"),
    refused("a threshold is an int32",
            cluster_queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {
                "policy": "LowerPriority", "maxPriorityThreshold": 2**31}}),
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold"),
    refused("borrowing preempts only where reclaim may",
            cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
            "spec.preemption.borrowWithinCohort", "reclaimWithinCohort"),
    refused("a strategy has at least one check", cluster_queue(admissionChecksStrategy={"admissionChecks": []}),
            "spec.admissionChecksStrategy.admissionChecks"),
    refused("a strategy has at most 64 checks", cluster_queue(admissionChecksStrategy={"admissionChecks": many(65)}),
            "spec.admissionChecksStrategy.admissionChecks", "64"),
    refused("a check stands once",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "a"}]}),
            "spec.admissionChecksStrategy.admissionChecks[1]", "Duplicate"),
    refused("a check has a name", cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": ""}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].name"),
    refused("a check's name has at most 316 characters",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a" * 317}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].name", "316"),
    refused("a check names a flavor once",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["f", "f"]}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]", "Duplicate"),
    refused("a check names at most 64 flavors",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [
                {"name": "a", "onFlavors": [f"f{i}" for i in range(65)]}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors", "64"),
    refused("a weight is a quantity", cluster_queue(fairSharing={"weight": "heavy"}), "spec.fairSharing.weight"),
    refused("an admission scope has a mode", cluster_queue(admissionScope={}), "spec.admissionScope.admissionMode"),
    refused("an unknown admission mode", cluster_queue(admissionScope={"admissionMode": "Luck"}),
            "spec.admissionScope.admissionMode"),
    refused("concurrent admission says how to migrate", cluster_queue(concurrentAdmissionPolicy={}),
            "spec.concurrentAdmissionPolicy.migration"),
    refused("a migration has a mode", cluster_queue(concurrentAdmissionPolicy={"migration": {}}),
            "spec.concurrentAdmissionPolicy.migration.mode"),
    refused("an unknown migration", cluster_queue(concurrentAdmissionPolicy={"migration": {"mode": "Both"}}),
            "spec.concurrentAdmissionPolicy.migration.mode"),
    status("a cluster queue's status", {
        "conditions": [condition("Active")], "pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0,
        "flavorsReservation": [{"name": "h100", "resources": [{"name": "cpu", "total": "1500m", "borrowed": "0"}]}],
        "flavorsUsage": [{"name": "h100", "resources": [{"name": "cpu", "total": 1, "borrowed": 0}]}],
        "fairSharing": {"weightedShare": 2**63 - 1}}, of=cluster_queue()),
    status("usage of a flavor stands once", {"flavorsUsage": [{"name": "a", "resources": []}] * 2},
           "status.flavorsUsage[1]", "Duplicate", of=cluster_queue()),
    status("usage of at most 64 flavors", {"flavorsUsage": many(65, resources=[])},
           "status.flavorsUsage", "64", of=cluster_queue()),
    status("reservation of at most 64 resources",
           {"flavorsReservation": [{"name": "a", "resources": many(65)}]},
           "status.flavorsReservation[0].resources", "64", of=cluster_queue()),
    status("a queue has at most 16 conditions", {"conditions": [condition(f"C{i}") for i in range(17)]},
           "status.conditions", "16", of=cluster_queue()),
    # ---- Cohort
    Create("a cohort needs nothing", obj("Cohort")),
    Create("a cohort has a parent, quota and a weight", obj("Cohort", {
        "parentName": "root", "fairSharing": {"weight": 2}, "resourceGroups": [group(quota(borrowingLimit=1))]})),
    refused("a parent's name is a subdomain", obj("Cohort", {"parentName": "A"}), "spec.parentName"),
    refused("a cohort has at most 16 groups",
            obj("Cohort", {"resourceGroups": [group(quota(f"r{i}")) for i in range(17)]}), "spec.resourceGroups", "16"),
    refused("a cohort's flavors list what is covered",
            obj("Cohort", {"resourceGroups": [group(covered=["cpu", "memory"])]}), "spec.resourceGroups[0].flavors",
            "same number of resources"),
    status("a cohort's share", {"fairSharing": {"weightedShare": 250}}, of=obj("Cohort")),
    status("a cohort's share is a number", {"fairSharing": {}}, "status.fairSharing.weightedShare", of=obj("Cohort")),
    # ---- LocalQueue
    Create("a local queue", obj("LocalQueue", {"clusterQueue": "cq", "fairSharing": {"weight": "0"}})),
    refused("a cluster queue's name is a subdomain", obj("LocalQueue", {"clusterQueue": "a b"}), "spec.clusterQueue"),
    refused("an unknown stop policy of a local queue",
            obj("LocalQueue", {"clusterQueue": "cq", "stopPolicy": "Drain"}), "spec.stopPolicy"),
    status("a local queue's status", {
        "conditions": [condition("Active")], "pendingWorkloads": 1, "reservingWorkloads": 0, "admittedWorkloads": 0,
        "flavorsReservation": [{"name": "h100", "resources": [{"name": "cpu", "total": "1"}]}],
        "flavorsUsage": [{"name": "h100", "resources": [{"name": "cpu", "total": "1"}]}],
        "fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m"}, "lastUpdate": NOW}}}, of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue's share is a number", {"fairSharing": {}}, "status.fairSharing.weightedShare",
           of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue uses at most 64 flavors", {"flavorsUsage": many(65, resources=[])}, "status.flavorsUsage",
           "64", of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue reserves at most 64 flavors", {"flavorsReservation": many(65, resources=[])},
           "status.flavorsReservation", "64", of=obj("LocalQueue", {"clusterQueue": "cq"})),
    # ---- ResourceFlavor
    Create("a flavor needs nothing", obj("ResourceFlavor")),
    Create("a flavor may say everything", flavor(
        nodeLabels={"gpu": "h100"}, nodeTaints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}],
        topologyName="racks", tolerations=[
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, {"operator": "Exists"},
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}, {"key": "b"}])),
    refused("at most 8 node labels", flavor(nodeLabels={f"l{i}": "" for i in range(9)}), "spec.nodeLabels", "8"),
    refused("at most 8 node taints",
            flavor(nodeTaints=[{"key": f"k{i}", "effect": "NoSchedule"} for i in range(9)]), "spec.nodeTaints", "8"),
    refused("an unknown effect of a taint", flavor(nodeTaints=[{"key": "k", "effect": "NoRun"}]),
            "spec.nodeTaints[0].effect", "NoExecute"),
    refused("at most 8 tolerations", flavor(tolerations=[{"key": f"k{i}"} for i in range(9)]), "spec.tolerations", "8"),
    refused("a toleration without a key tolerates all", flavor(tolerations=[{"operator": "Equal"}]),
            "spec.tolerations[0].operator", "Exists"),
    refused("toleration seconds are for NoExecute",
            flavor(tolerations=[{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}]),
            "spec.tolerations[0].effect", "NoExecute"),
    refused("an unknown operator of a toleration", flavor(tolerations=[{"key": "k", "operator": "In"}]),
            "spec.tolerations[0].operator"),
    refused("what exists has no value", flavor(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
            "spec.tolerations[0].value"),
    refused("an unknown effect of a toleration", flavor(tolerations=[{"key": "k", "effect": "NoRun"}]),
            "spec.tolerations[0].effect"),
    refused("a topology needs node labels", flavor(topologyName="racks"), "spec.nodeLabels", "topologyName"),
    refused("an empty map is no node label", flavor(topologyName="racks", nodeLabels={}), "spec.nodeLabels"),
    refused("a topology's name is a subdomain", flavor(topologyName="R", nodeLabels={"a": "b"}), "spec.topologyName"),
    # ---- WorkloadPriorityClass
    Create("a priority class", obj("WorkloadPriorityClass", value=-5, description="a" * 2048)),
    refused("a priority class has a value", obj("WorkloadPriorityClass"), "value"),
    refused("a class's value is an int32", obj("WorkloadPriorityClass", value=2**31), "value"),
    refused("a description has at most 2048 characters",
            obj("WorkloadPriorityClass", value=1, description="a" * 2049), "description", "2048"),
    # ---- AdmissionCheck
    Create("a check with parameters", obj("AdmissionCheck", {
        "controllerName": "example.com/c", "parameters": {"apiGroup": "example.com", "kind": "Config", "name": "a"}})),
    Create("a check without parameters", obj("AdmissionCheck", {"controllerName": "c"})),
    refused("a check has a controller", obj("AdmissionCheck", {}), "spec.controllerName"),
    refused("a controller has a name", obj("AdmissionCheck", {"controllerName": ""}), "spec.controllerName"),
    refused("a controller's name has at most 253 characters", obj("AdmissionCheck", {"controllerName": "a" * 254}),
            "spec.controllerName", "253"),
    *(
        refused(f"parameters: {name} is checked",
                obj("AdmissionCheck", {"controllerName": "c", "parameters": {
                    "apiGroup": "example.com", "kind": "Config", "name": "a", name: value}}), f"spec.parameters.{name}")
        for name, value in (("apiGroup", ""), ("apiGroup", "a" * 254), ("apiGroup", "A b"), ("kind", ""),
                            ("kind", "K" * 64), ("name", ""), ("name", "a" * 64))
    ),
    status("a check's condition", {"conditions": [condition("Active")]},
           of=obj("AdmissionCheck", {"controllerName": "c"})),
    # ---- Topology
    Create("a topology", topology("cloud.example.com/block", "rack", "kubernetes.io/hostname")),
    refused("a topology has levels", topology(), "spec.levels"),
    refused("a topology has at most 16 levels", topology(*(f"l{i}" for i in range(17))), "spec.levels", "16"),
    refused("levels are unique", topology("rack", "rack"), "spec.levels", "must be unique"),
    refused("the host is the lowest level", topology("kubernetes.io/hostname", "rack"), "spec.levels",
            "kubernetes.io/hostname"),
    refused("a level is a label key", topology("a b"), "spec.levels[0].nodeLabel"),
    refused("a level has a label", topology(""), "spec.levels[0].nodeLabel"),
    refused("a level's label has at most 316 characters", topology("a" * 317), "spec.levels[0].nodeLabel", "316"),
    # ---- ProvisioningRequestConfig
    Create("a provisioning config", obj("ProvisioningRequestConfig", {
        **PROVISIONING, "parameters": {"a": "b"}, "managedResources": ["cpu"],
        "podSetUpdates": {"nodeSelector": [{"key": "a/b", "valueFromProvisioningClassDetail": "d"}]},
        "podSetMergePolicy": "IdenticalPodTemplates"})),
    *(
        refused(f"provisioning: {path}", obj("ProvisioningRequestConfig", {**PROVISIONING, **spec}), f"spec.{path}")
        for path, spec in (
            ("provisioningClassName", {"provisioningClassName": "A"}),
            ("parameters", {"parameters": {f"p{i}": "" for i in range(101)}}),
            ("parameters.a", {"parameters": {"a": "b" * 256}}),
            ("managedResources", {"managedResources": [f"r{i}" for i in range(101)]}),
            ("managedResources[1]", {"managedResources": ["cpu", "cpu"]}),
            ("podSetUpdates.nodeSelector", {"podSetUpdates": {"nodeSelector": [
                {"key": f"k{i}", "valueFromProvisioningClassDetail": "d"} for i in range(9)]}}),
            ("podSetUpdates.nodeSelector[0].key", {"podSetUpdates": {"nodeSelector": [
                {"key": "a b", "valueFromProvisioningClassDetail": "d"}]}}),
            ("podSetUpdates.nodeSelector[0].valueFromProvisioningClassDetail",
             {"podSetUpdates": {"nodeSelector": [{"key": "a"}]}}),
            ("podSetMergePolicy", {"podSetMergePolicy": "All"}),
        )
    ),
    refused("a provisioning class is required", obj("ProvisioningRequestConfig", {}), "spec.provisioningClassName"),
    # ---- MultiKueue
    Create("a config of worker clusters",
           obj("MultiKueueConfig", {"clusters": ["b", "a"], "quotaManagement": "Manual"})),
    refused("a config has clusters", obj("MultiKueueConfig", {"clusters": []}), "spec.clusters"),
    refused("a config has at most 20 clusters", obj("MultiKueueConfig", {"clusters": [f"c{i}" for i in range(21)]}),
            "spec.clusters", "20"),
    refused("clusters are unique", obj("MultiKueueConfig", {"clusters": ["a", "b", "a"]}), "spec.clusters", "unique"),
    refused("an unknown quota management", obj("MultiKueueConfig", {"clusters": ["a"], "quotaManagement": "Mixed"}),
            "spec.quotaManagement"),
    Create("a worker cluster by kubeconfig",
           obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Path"}}})),
    Create("a worker cluster by profile",
           obj("MultiKueueCluster", {"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
    refused("a cluster has one source, not two", obj("MultiKueueCluster", {"clusterSource": {
        "clusterProfileRef": {"name": "p"}, "kubeConfig": {"location": "s"}}}), "spec.clusterSource", "exactly one"),
    refused("a cluster has one source, not none", obj("MultiKueueCluster", {"clusterSource": {}}),
            "spec.clusterSource", "exactly one"),
    refused("a kubeconfig is somewhere", obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": ""}}}),
            "spec.clusterSource.kubeConfig.location"),
    refused("a location has at most 256 characters",
            obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "a" * 257}}}),
            "spec.clusterSource.kubeConfig.location", "256"),
    refused("an unknown kind of location", obj("MultiKueueCluster", {"clusterSource": {
        "kubeConfig": {"location": "s", "locationType": "URL"}}}), "spec.clusterSource.kubeConfig.locationType"),
    status("a worker cluster's condition", {"conditions": [condition("Active")]},
           of=obj("MultiKueueCluster", {"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
]  # fmt: skip
