"""Kernels of a program for a GPU, of a text by hand."""

from everlight.continual.engine.cost.kernels import kernel_bytes

PROGRAM = """HloModule jit_step, is_scheduled=true

%fused_add (p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(0)
  ROOT %add.1 = f32[4]{0} add(%p.1, %p.1)
}

%body (state: (s32[], f32[4])) -> (s32[], f32[4]) {
  %state = (s32[], f32[4]{0}) parameter(0)
  %number = s32[] get-tuple-element(%state), index=0
  %values = f32[4]{0} get-tuple-element(%state), index=1
  %more = f32[4]{0} fusion(%values), kind=kLoop, calls=%fused_add
  ROOT %next = (s32[], f32[4]{0}) tuple(%number, %more)
}

%condition (state.1: (s32[], f32[4])) -> pred[] {
  %state.1 = (s32[], f32[4]{0}) parameter(0)
  %number.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] fusion(%number.1), kind=kLoop, calls=%fused_add
}

%few (x.1: f32[4]) -> f32[4] {
  ROOT %x.1 = f32[4]{0} parameter(0)
}

%many (x.2: f32[4]) -> f32[4] {
  %x.2 = f32[4]{0} parameter(0)
  ROOT %sorted = f32[4]{0} sort(%x.2), dimensions={0}, to_apply=%fused_add
}

%commands (x.3: f32[4]) -> f32[4] {
  %x.3 = f32[4]{0} parameter(0)
  ROOT %copy.3 = f32[4]{0} copy(%x.3)
}

ENTRY %main.1 (a.1: bf16[2,3], data.1: u8[1000], which.1: pred[]) -> f32[4] {
  %a.1 = bf16[2,3]{1,0} parameter(0), metadata={op_name="learned[0]"}
  %data.1 = u8[1000]{0} parameter(1), metadata={op_name="run[0].shared[0]"}
  %which.1 = pred[] parameter(2)
  %rows = u8[4]{0} fusion(%data.1), kind=kLoop, calls=%fused_add
  %flat = bf16[6]{0} bitcast(%a.1)
  %call.1 = (f32[4]{0}, u8[0]{0}) custom-call(%flat, %rows), custom_call_target="__gemm"
  %first = f32[4]{0} get-tuple-element(%call.1), index=0
  %zero = s32[] constant(0)
  %start = (s32[], f32[4]{0}) tuple(%zero, %first)
  %loop = (s32[], f32[4]{0}) while(%start), condition=%condition, body=%body
  %last = f32[4]{0} get-tuple-element(%loop), index=1
  %chosen = f32[4]{0} conditional(%which.1, %last, %last), branch_computations={%few, %many}
  ROOT %end = f32[4]{0} call(%chosen), to_apply=%commands
}
"""


def test_kernels_of_loops_branches_and_calls_count_and_what_they_call_does_not():
    """The bytes are: rows 0 + 4; call 12 + 4 + 16; condition 4 + 1; body, sort, copy 16 + 16."""
    assert kernel_bytes(PROGRAM, "run") == [4, 32, 5, 32, 32, 32]
    assert kernel_bytes(PROGRAM, "other")[0] == 1004
