"""The "musagraphs" backend; not simulated yet."""

from ..._not_simulated import absent

__getattr__ = absent(
    __name__,
    {
        "BoxedDeviceIndex",
        "MusagraphsBackend",
        "check_for_mutation_ignore_musa_graph_managed_tensor",
        "check_for_skip",
        "check_multiple_devices_or_any_cpu_nodes",
        "find_input_mutations",
        "format_default_skip_message",
        "get_device_index",
        "get_device_node_mapping",
        "get_mutation_stack_trace",
        "get_placeholder_info",
        "get_stack_traces",
        "log_musagraph_skip_and_bump_counter",
        "musagraphs",
        "musagraphs_inner",
    },
    "musagraphs backend",
)
